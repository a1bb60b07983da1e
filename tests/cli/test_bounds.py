"""Untrusted configs and invalid sizes or paths: a fast answer that names them."""

import os
import random
import re
import time
from pathlib import Path

import pytest

from recsys_cli.cli.boundary import explain
from recsys_cli.cpu import cores
from recsys_cli.errors import ConfigError
from recsys_cli.training.hardware import device
from recsys_cli.training.member import Member
from tests.cli.conftest import Recsys

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
DEMO = (CONFIGS / "demo.yaml").read_text(encoding="utf-8")
SECONDS = 2.0
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def answered(recsys: Recsys, *line: object) -> tuple[int, str]:
    """Run a line; check speed and form of the answer; return exit code and output."""
    started = time.process_time()
    answer = recsys(*line)
    seconds = time.process_time() - started
    is_missing_file = line[0] == "validate" and "no file matches" in answer.err
    assert answer.code == 4 if is_missing_file else answer.code in {0, 2}, (line, answer.err)
    assert "Traceback" not in answer.err
    assert seconds < SECONDS, (line, seconds)
    return answer.code, answer.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "x.yaml:5:4: not YAML: more than 10,000 values, with aliases expanded"),
        ("a: &x [*x]\n", "x.yaml:1:8: not YAML: an anchor that contains itself"),
        ("a: 1\nb: " + "[" * 100_000, "x.yaml:2:53: not YAML: more than 50 levels"),
        ("".join(" " * depth + "a:\n" for depth in range(200)), "x.yaml:50:50: not YAML: more than 50 levels"),
        ("a: !!int foo\n", "x.yaml:1:4: not YAML: 'foo' is not a valid int"),
        ("a: !!bool foo\n", "x.yaml:1:4: not YAML: 'foo' is not a valid bool"),
        ("a: !!timestamp foo\n", "x.yaml:1:4: not YAML: unsupported type 'tag:yaml.org,2002:timestamp'"),
        ("a: !!map foo\n", "x.yaml:1:4: not YAML: not a mapping"),
        ("a: !!int [1]\n", "x.yaml:1:4: not YAML: expected a scalar"),
        ("a: " + "9" * 5_000, "x.yaml:1:4: not YAML: number with 5,000 characters"),
        ("a: 18446744073709551616\n", "x.yaml:1:4: not YAML: 18446744073709551616 does not fit into 64 bits"),
        ('a: "\\0"\n', "x.yaml:1:4: not YAML: text with NUL"),
        ('a: "\\ud800"\n', "x.yaml:1:4: not YAML: text with NUL or a lone surrogate"),
        ("a: 1\nb: \0\n", "x.yaml:2: not YAML: invalid character U+0000"),
        ("#" * 300_000, "x.yaml: not YAML: 300,000 characters"),
        (DEMO.replace("train:", "train:\n" + "\n".join(f"  key{n}: 1" for n in range(4_500))), "and 4,300 more"),
        (
            DEMO.partition("tune:")[0] + f"tune: {{space: {{train.epochs: {{choices: {list(range(1, 5_000))}}}}}}}\n",
            "train.epochs: the space has more than 500 values to check",
        ),
        (DEMO.partition("tune:")[0] + f"bench: {{models: {['mlp'] * 501}}}\n", "bench.models: allows at most 500, and has 501"),
    ],
    ids=lambda value: value[:20] if len(value) < 100 else "long",
)  # fmt: skip
def test_a_config_beyond_the_bounds_is_refused_with_its_line(recsys, text, message):
    Path("x.yaml").write_text(text, encoding="utf-8")
    code, said = answered(recsys, "validate", "x.yaml")
    assert code == 2
    assert message in said


@pytest.mark.parametrize(
    "argument",
    ["train.x=" + "[" * 5_000, ".".join("a" * 3_000) + "=1", "train.seed=" + "9" * 5_000, "a={[1]: 2}", "a=*x", "a=!!int foo",
     "train.seed=1\0", "model.document=1", "dataset.document=1", "dataset.name=[]", "train.epochs=!!binary x", "a=" + "x" * 99_999],
    ids=lambda argument: argument[:20],
)  # fmt: skip
def test_an_odd_override_is_refused(recsys, argument):
    assert answered(recsys, "validate", CONFIGS / "demo.yaml", argument)[0] == 2


@pytest.mark.parametrize("name", ["x\0.yaml", "x" * 300 + ".yaml", "configs/" + "x" * 300, "x" * 5_000, "\udc80", ""])
def test_an_odd_path_is_refused(recsys, name):
    assert answered(recsys, "validate", name)[0] == 2


def test_configs_within_the_bounds_are_read(recsys):
    Path("x.yaml").write_text(DEMO.replace("train:", "train:\n  seed: 0x7fffffff", 1), encoding="utf-8")
    assert answered(recsys, "validate", "x.yaml", "train.learning_rate=1_0.5e-3")[0] == 0


# -- fuzz: RECSYS_FUZZ=10000 for a long one ---------------------------------------------------------------------------

ODD = [
    *re.findall(
        r"\S+",
        """~ null true -1 0 1e999 .nan -.inf 1e-400 [] {} [[]] '' *a &a !!int ! | > ? - : # --- ... é 𝄞 @ os:system a.b:c ../..
        /etc/passwd http://x s3://x files userId genres (((((( random temporal ease sasrec sharded regression 1970-01-01""",
    ),
    *(
        "",
        " ",
        "\t",
        "\n",
        "\r",
        "\x85",
        "\u2028",
        "\ufeff",
        "9" * 30,
        "{a: }",
        '"\\0"',
        "&a [*a]",
        "<<: *a",
        "!!int x",
    ),
    *("!!python/object:os.system x", "%YAML 1.1", "{name: files}", "[userId, movieId]", "rating > "),
    "{op: LambdaOp, expression: '1 +', output: x}",
]
LINE = re.compile(r"^( *)([\w.]+): *(.*)$")


def mutated(text: str, rng: random.Random) -> str:
    """Change a config in one to four places, as a slip, a merge or an enemy might."""
    lines = text.splitlines(keepends=True)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(lines))
        line = lines[place]
        match rng.randrange(8):
            case 0:
                lines[place] = rng.choice(ODD) + "\n"
            case 1 if found := LINE.match(line.rstrip("\n")):
                lines[place] = f"{found[1]}{found[2]}: {rng.choice(ODD)}\n"
            case 2:
                cut = rng.randrange(len(line) + 1)
                lines[place] = line[:cut] + rng.choice(ODD) + line[cut:]
            case 3:
                lines[place] = line + rng.choice(lines)
            case 4:
                lines[place] = ""
            case 5:
                lines[place] = " " * rng.randrange(9) + line
            case 6 if len(line) > 1:
                cut = rng.randrange(len(line) - 1)
                lines[place] = line[:cut] + chr(rng.choice([*range(32, 127), 0xE9, 0x2028])) + line[cut + 1 :]
            case _:
                other = rng.randrange(len(lines))
                lines[place], lines[other] = lines[other], line
    return "".join(lines)


KEYS = re.findall(
    r"\S+",
    """dataset dataset.name split split.method split.valid features features.label features.ops.0 features.ops.9 features.timestamp
    etl etl.engine etl.cluster etl.memory_mib model model.name model.hidden_dims model.embedding model.embedding.placement train
    train.schedule train.schedule.name train.monitor train.trackers train.seed train.continue_from evaluate.k evaluate.relevance
    tune tune.space bench bench.models bench.metrics bench.seeds . a..b é""",
)


def fuzz(recsys: Recsys, first: int, count: int) -> list[str]:
    """Return the seeds of changed configs without a proper answer, with the reason."""
    configs = sorted(path.read_text(encoding="utf-8") for path in CONFIGS.rglob("*.yaml"))
    wrong = []
    for seed in range(first, first + count):
        rng = random.Random(seed)
        Path("x.yaml").write_text(mutated(rng.choice(configs), rng), encoding="utf-8")
        overrides = [f"{rng.choice(KEYS)}={rng.choice(ODD)}" for _ in range(rng.choice([0, 0, 1, 2]))]
        try:
            answered(recsys, "validate", "x.yaml", *overrides)
        except Exception as error:
            wrong.append(f"seed {seed}, overrides {overrides}: {error!r}")
    return wrong


def test_changed_configs_and_overrides_are_answered(recsys):
    assert fuzz(recsys, 0, int(os.environ.get("RECSYS_FUZZ", "60"))) == []


DEMO_CONFIG = str(Path(__file__).resolve().parents[2] / "configs" / "demo.yaml")


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("evaluate.k=[999999999999]", "evaluate.k"),
        ("train.monitor=ndcg@999999999", "ndcg@999999999"),
        ("tune.space={train.learning_rate: {low: 1e-5, high: 1, step: 1e-300}}", "step 1e-300"),
    ],
)
def test_invalid_size_is_a_config_error(recsys, override, named):
    answer = recsys("validate", DEMO_CONFIG, override)
    assert answer.code == 2
    assert named in answer.err


def test_processes_are_bounded_by_the_cores():
    most = max(8, 4 * cores())
    assert device("cpu", Member(0, most, 0, most)).type == "cpu"
    with pytest.raises(ConfigError, match=f"{most + 1} processes on a machine with {cores()} cores"):
        device("cpu", Member(0, most + 1, 0, most + 1))


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (MemoryError("Unable to allocate 513. TiB"), 6, "recsys train --plan"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0"), 6, "error: not enough memory: "),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"), 2, r"name b'\xff' is not UTF-8"),
    ],
)
def test_errors_of_libraries_are_said_in_words(error, code, sentence, capsys):
    assert explain(error, [], None) == code
    assert sentence in capsys.readouterr().err


def test_invalid_workspace_is_reported(recsys, tmp_path):
    taken, dangling = tmp_path / "file", tmp_path / "link"
    taken.write_text("here is no workspace")
    dangling.symlink_to(tmp_path / "nowhere")
    for path, reason in ((taken, "not a folder"), (dangling, "broken link"), ("x" * 300, "too long")):
        for command in ("status", "etl"):
            answer = recsys(command, "--workspace", str(path))
            assert answer.code == 2
            assert reason in answer.err
    assert recsys("status", "--workspace", str(tmp_path / "new")).code == 0


def test_unreadable_header_is_reported(recsys):
    Path("long.csv").write_text("user,item,rating,time," + "x" * 200_000 + "\n1,2,3,4,5\n")
    ops = "[{op: Categorify, columns: [user, item]}]"
    Path("long.yaml").write_text(
        "dataset: {name: files, interactions: long.csv}\n"
        f"features: {{user: user, item: item, label: rating, ops: {ops}}}\n"
    )
    answer = recsys("etl", "long.yaml")
    assert answer.code == 4
    assert "long.csv:1: " in answer.err
