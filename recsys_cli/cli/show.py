"""Read-only commands: validate, config, status, doctor, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.completion import complete_run_or_config
from recsys_cli.cli.params import Config, Overrides, config_path, joined, read_config, split_arguments
from recsys_cli.cli.quantities import size
from recsys_cli.cli.session import Session
from recsys_cli.cli.tables import facts, line, notes, table

if TYPE_CHECKING:
    from rich.console import Console


def validate(ctx: typer.Context, config: Config = None, overrides: Overrides = None) -> None:
    """Validate a config, against the first rows of its files if they are there, and list all problems."""
    session: Session = ctx.obj
    arguments = joined(config, overrides)
    settings = read_config(session, arguments)
    path = config_path(session, split_arguments(arguments)[0])
    from recsys_cli.stages.validate import validate

    checked = validate(settings, session.workspace)
    result = {
        "config": str(path),
        "valid": True,
        "dataset": settings.dataset.name,
        "model": settings.model.name,
        "data": None if checked is None else asdict(checked),
    }
    session.report(result, _draw_validity)


def _draw_validity(to: Console, result: Mapping[str, Any]) -> None:
    if (data := result["data"]) is not None:
        cells = [(name, kind, f"{data['nulls'].get(name, 0):.1%}") for name, kind in data["columns"].items()]
        table(
            to,
            f"first {data['sampled']:,} of about {data['rows']:,} rows",
            ("column", "type", "missing"),
            cells,
            text=2,
        )
        matched = ", ".join(f"{name} for {share:.1%} of the rows" for name, share in data["matched"].items())
        facts(to, [("joined", matched), ("memory", f"at most {size(data['memory'])} for the preparation")])
        notes(to, data["notes"])
    line(to, f"{result['config']} is valid")


def show_config(ctx: typer.Context, config: Config = None, overrides: Overrides = None) -> None:
    """Print a config with overrides and all defaults."""
    session: Session = ctx.obj
    settings = read_config(session, joined(config, overrides))
    from recsys_cli.config import DatasetConfig
    from recsys_cli.config.load import dump_resolved
    from recsys_cli.data import options_of

    dataset = settings.dataset
    if (options := options_of(dataset.name)) is not None:
        spelled_out = DatasetConfig.model_validate({**options.spelled_out(dataset.options), "name": dataset.name})
        settings = settings.model_copy(update={"dataset": spelled_out})
    session.answer(settings.model_dump(mode="json"), lambda *_: typer.echo(dump_resolved(settings), nl=False))


def status(ctx: typer.Context) -> None:
    """Show the workspace and the next command."""
    session: Session = ctx.obj
    from recsys_cli.cli.status import survey

    found = survey(session.workspace)
    if "next" in found["current"]:
        found["current"]["next"] = session.located(found["current"]["next"])
    session.answer(found, _draw_status)


def doctor(ctx: typer.Context) -> None:
    """Show hardware, versions and available engines."""
    session: Session = ctx.obj
    from recsys_cli.cli.doctor import examine

    session.answer(examine(), _draw_doctor)


def report(
    ctx: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|DATA|CONFIG",
            help="Run or prepared data (name, or its beginning), or a config for its prepared data. "
            "Default: the run of the last config if evaluated, otherwise its prepared data.",
            show_default=False,
            autocompletion=complete_run_or_config,
        ),
    ] = None,
) -> None:
    """Open the report of a run or of prepared data; print its path."""
    session: Session = ctx.obj
    from recsys_cli.cli.reports import find_report, open_page

    result = find_report(session, what)
    session.answer(result, lambda *_: typer.echo(result["report"]))
    if not session.as_json:
        open_page(result["report"])


def _draw_status(to: Console, result: Mapping[str, Any]) -> None:
    if not (result["raw"] or result["data"] or result["runs"] or result["current"]["config"]):
        line(to, f"{result['workspace']} is empty")
        line(to, "next: recsys ls datasets, then recsys download NAME, or recsys init TABLE for your own", style="dim")
        return
    table(to, "raw", ("dataset", "size"), [(r["name"], size(r["bytes"])) for r in result["raw"]])
    cells = [
        (d["key"], *(f"{d['rows'].get(s, 0):,}" for s in ("train", "valid", "test")), size(d["bytes"]))
        for d in result["data"]
    ]
    table(to, "prepared", ("key", "train", "valid", "test", "size"), cells)
    heads, cells = _runs(result["runs"], has_data=len(result["data"]) > 1)
    table(to, "runs", heads, cells, text=heads.index("state") + 1)
    studies = [
        (s["name"], ", ".join(s["keys"]), f"{s['metric'] or ''} {_figure(s, 'best') or '–'}",
         f"{sum(s['trials'].get(state, 0) for state in ('finished', 'pruned', 'failed'))} of {s['trials'].get('wanted', 0)}")
        for s in result["studies"]
    ]  # fmt: skip
    table(to, "studies", ("study", "keys", "best", "trials"), studies, text=3)
    for problem in [
        one["problem"] for kind in ("raw", "data", "runs", "studies") for one in result[kind] if one["problem"]
    ]:
        line(to, problem, style="red")
    for path in result["leftovers"]:
        line(to, f"{path} is incomplete, and no command reads it: remove it, unless one is writing it", style="red")
    current, finished = result["current"], {run["data"] for run in result["runs"]} - {None}
    if finished and current.get("data") not in finished:
        text = "the current config has no run on its data; the others work by name, such as recsys recommend RUN"
        line(to, text, style="yellow")
    shown = ("config", "problem", "dataset", "data", "run", "next")
    facts(to, [(name, str(current.get(name) or "")) for name in shown])


def _runs(
    runs: Sequence[Mapping[str, Any]], *, has_data: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and cells; RMSE only for runs with a numeric label."""
    from recsys_cli.metrics.named import BINARY, REGRESSION

    of_classes, of_numbers = BINARY.default, REGRESSION.default
    errors = [{} if of_classes.name in run["metrics"] else run["metrics"] for run in runs]
    has_errors, has_options = any(of_numbers.name in one for one in errors), any(run["options"] for run in runs)
    cells = [
        (
            run["name"], *([run["data"] or ""] if has_data else []), *([_written(run["options"])] if has_options else []),
            run["state"],
            _figure(run["metrics"], of_classes.name),
            *([_figure(one, of_numbers.name)] if has_errors else []),
            _figure(run["metrics"], "ndcg@10"), size(run["bytes"]),
        )
        for run, one in zip(runs, errors, strict=True)
    ]  # fmt: skip
    heads = ("run", *(["data"] if has_data else []), *(["options"] if has_options else []), "state")
    return (*heads, of_classes.title, *([of_numbers.title] if has_errors else []), "NDCG@10", "size"), cells


def _written(options: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={value:,g}" if isinstance(value, float) else f"{name}={value}" for name, value in options.items()
    )


def _figure(metrics: Mapping[str, float | None], name: str) -> str:
    value = metrics.get(name)
    return "" if value is None else f"{value:.4f}"


def _draw_doctor(to: Console, result: Mapping[str, Any]) -> None:
    nvtabular = result["nvtabular"]
    packages = ", ".join(f"{name} {version or 'missing'}" for name, version in result["packages"].items())
    pins = "; ".join(f"{name} is {wrong}" for name, wrong in nvtabular["wrong_pins"].items())
    able = [e["name"] for e in result["engines"] if e["available"]]
    reasons = [f"{e['why_not']} ({e['install']})" for e in result["engines"] if not e["available"]]
    facts(
        to,
        [
            ("python", f"{result['python']} on {result['platform']}, {result['executable']}"),
            ("cores", str(result["cores"])),
            ("memory", size(result["memory"]) if result["memory"] else "unknown"),
            ("packages", packages),
            *_torch_facts(result["torch"]),
            ("sharded", _sharded(result["sharding"])),
            ("nvtabular", nvtabular["state"]),
            ("wrong pins", pins),
            ("etl engines", "; ".join([", ".join(able), *reasons])),
            ("auto engine", f"{result['auto_engine']}, the fastest available engine"),
            ("clusters", "; ".join(_cluster(kind, it) for kind, it in result["clusters"].items())),
            *_gpu_facts(result["gpu"]),
        ],
    )


def _gpu_facts(gpu: Mapping[str, Any]) -> list[tuple[str, str]]:
    reasons = [f"{e['why_not']} ({e['install']})" for e in gpu["engines"] if not e["available"]]
    auto = f"auto: {gpu['auto_engine']}, the fastest available engine"
    needs = [
        f"{engine} with " + ", ".join(f"{name} {release}" for name, release in releases["needs"].items())
        for engine, releases in gpu["releases"].items()
    ]
    return [("etl on GPU", "; ".join([auto if gpu["auto_engine"] else "no engine available", *reasons])),
            ("GPU needs", "; ".join(needs))]  # fmt: skip


def _cluster(kind: str, cluster: Mapping[str, Any]) -> str:
    return f"{kind} ({cluster['install'] or cluster['package'] + ' ' + str(cluster['version'])})"


def _sharded(sharding: Mapping[str, Any]) -> str:
    if sharding["why_not"]:
        return f"{sharding['why_not']} ({sharding['install']})"
    return ", ".join(f"{name} {version}" for name, version in sharding["packages"].items() if version)


def _torch_facts(torch: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "error" in torch:
        return [("torch", torch["error"])]
    bf16 = "native bf16" if torch["cpu_bf16"] else "no native bf16 (AMX or AVX-512)"
    return [
        ("torch", f"{torch['threads']} threads, CPU with {bf16}, CUDA {torch['cuda'] or 'not built in'}"),
        ("GPUs", ", ".join(torch["gpus"]) or "none"),
        ("auto device", f"{torch['auto_device']} for training, in {torch['auto_precision']}"),
    ]
