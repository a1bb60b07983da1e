"""Commands that look and change nothing: validate, config, status, doctor, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recsys_cli.cli.params import Config, Overrides, config_path, joined, read_config, split_arguments
from recsys_cli.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console


def validate(ctx: typer.Context, config: Config = None, overrides: Overrides = None) -> None:
    """Check a config and name everything wrong with it."""
    session: Session = ctx.obj
    arguments = joined(config, overrides)
    found = read_config(session, arguments)
    path = config_path(session, split_arguments(arguments)[0])
    result = {"config": str(path), "valid": True, "dataset": found.dataset.name, "model": found.model.name}
    session.report(result, lambda to, _: _line(to, f"{path} is valid"))


def show_config(ctx: typer.Context, config: Config = None, overrides: Overrides = None) -> None:
    """Print a config with overrides and every default."""
    session: Session = ctx.obj
    found = read_config(session, joined(config, overrides))
    from recsys_cli.config import DatasetConfig
    from recsys_cli.config.load import dump_to_go_on
    from recsys_cli.data import options_of

    dataset = found.dataset
    if (options := options_of(dataset.name)) is not None:
        spelled_out = DatasetConfig.model_validate({**options.spelled_out(dataset.options), "name": dataset.name})
        found = found.model_copy(update={"dataset": spelled_out})
    session.answer(found.model_dump(mode="json"), lambda *_: typer.echo(dump_to_go_on(found), nl=False))


def status(ctx: typer.Context) -> None:
    """Show what is in the workspace and what to run next."""
    session: Session = ctx.obj
    from recsys_cli.cli.status import survey

    session.answer(survey(session.workspace), _draw_status)


def doctor(ctx: typer.Context) -> None:
    """Show what this machine can do, and what is missing."""
    session: Session = ctx.obj
    from recsys_cli.cli.doctor import examine

    session.answer(examine(), _draw_doctor)


def report(
    ctx: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|DATA|CONFIG",
            help="Run or prepared data, by name or the beginning of it, or a config, whose data is meant; "
            "left out: of the config of the last stage, its run if it is evaluated, else its data.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Open the report of a run or of prepared data, and print where it is."""
    session: Session = ctx.obj
    from recsys_cli.cli.reports import find_report, open_page

    found = find_report(session, what)
    session.answer(found, lambda *_: typer.echo(found["report"]))
    if not session.as_json:
        open_page(found["report"])


def _line(to: Console, text: str) -> None:
    from recsys_cli.cli.tables import line

    line(to, text)


def _draw_status(to: Console, found: Mapping[str, Any]) -> None:
    from recsys_cli.cli.quantities import size
    from recsys_cli.cli.tables import facts, line, table

    if not (found["raw"] or found["data"] or found["runs"] or found["current"]["config"]):
        line(to, f"{found['workspace']} is empty")
        line(to, "next: recsys ls datasets, then recsys download NAME, or recsys init TABLE for your own", style="dim")
        return
    table(to, "raw", ("dataset", "size"), [(r["name"], size(r["bytes"])) for r in found["raw"]])
    cells = [
        (d["key"], *(f"{d['rows'].get(s, 0):,}" for s in ("train", "valid", "test")), size(d["bytes"]))
        for d in found["data"]
    ]
    table(to, "prepared", ("key", "train", "valid", "test", "size"), cells)
    table(to, "runs", *_runs(found["runs"]), text=2)
    studies = [
        (s["name"], ", ".join(s["keys"]), f"{s['metric'] or ''} {_figure(s, 'best') or '–'}",
         f"{sum(s['trials'].get(state, 0) for state in ('finished', 'pruned', 'failed'))} of {s['trials'].get('wanted', 0)}")
        for s in found["studies"]
    ]  # fmt: skip
    table(to, "studies", ("study", "keys", "best", "trials"), studies, text=3)
    for problem in [
        one["problem"] for kind in ("raw", "data", "runs", "studies") for one in found[kind] if one["problem"]
    ]:
        line(to, problem, style="red")
    current = found["current"]
    shown = ("config", "problem", "dataset", "data", "run", "next")
    facts(to, [(name, str(current.get(name) or "")) for name in shown])


def _runs(found: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and cells; with the RMSE where a run predicts a number, and of such runs alone: others' is of probabilities."""
    from recsys_cli.cli.quantities import size
    from recsys_cli.metrics.label_task import BINARY, REGRESSION

    of_classes, of_numbers = BINARY.default, REGRESSION.default
    errors = [{} if of_classes.name in run["metrics"] else run["metrics"] for run in found]
    has_errors = any(of_numbers.name in one for one in errors)
    cells = [
        (
            run["name"], run["state"], _figure(run["metrics"], of_classes.name),
            *([_figure(one, of_numbers.name)] if has_errors else []),
            _figure(run["metrics"], "ndcg@10"), size(run["bytes"]),
        )
        for run, one in zip(found, errors, strict=True)
    ]  # fmt: skip
    return ("run", "state", of_classes.title, *([of_numbers.title] if has_errors else []), "NDCG@10", "size"), cells


def _figure(metrics: Mapping[str, float | None], name: str) -> str:
    value = metrics.get(name)
    return "" if value is None else f"{value:.4f}"


def _draw_doctor(to: Console, found: Mapping[str, Any]) -> None:
    from recsys_cli.cli.quantities import size
    from recsys_cli.cli.tables import facts

    nvtabular = found["nvtabular"]
    packages = ", ".join(f"{name} {version or 'missing'}" for name, version in found["packages"].items())
    pins = "; ".join(f"{name} is {wrong}" for name, wrong in nvtabular["wrong_pins"].items())
    able = [e["name"] for e in found["engines"] if e["available"]]
    reasons = [f"{e['why_not']} ({e['install']})" for e in found["engines"] if not e["available"]]
    facts(
        to,
        [
            ("python", f"{found['python']} on {found['platform']}, {found['executable']}"),
            ("cores", str(found["cores"])),
            ("memory", size(found["memory"]) if found["memory"] else "unknown"),
            ("packages", packages),
            *_torch_facts(found["torch"]),
            ("sharded", _sharded(found["sharding"])),
            ("nvtabular", nvtabular["state"]),
            ("wrong pins", pins),
            ("etl engines", "; ".join([", ".join(able), *reasons])),
            ("auto takes", f"{found['auto_engine']} for etl, as the fastest of those that can run here"),
            ("clusters", "; ".join(_cluster(kind, it) for kind, it in found["clusters"].items())),
            *_gpu_facts(found["gpu"]),
        ],
    )


def _gpu_facts(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Say what etl.device=gpu would do here, and which releases go together for it."""
    reasons = [f"{e['why_not']} ({e['install']})" for e in found["engines"] if not e["available"]]
    auto = f"auto takes {found['auto_engine']}, as the fastest of those that can run here"
    needs = [
        f"{engine} with " + ", ".join(f"{name} {release}" for name, release in releases["needs"].items())
        for engine, releases in found["releases"].items()
    ]
    return [("etl on GPU", "; ".join([auto if found["auto_engine"] else "none can run here", *reasons])),
            ("go together", "; ".join(needs))]  # fmt: skip


def _cluster(kind: str, found: Mapping[str, Any]) -> str:
    return f"{kind} ({found['install'] or found['package'] + ' ' + str(found['version'])})"


def _sharded(found: Mapping[str, Any]) -> str:
    if found["why_not"]:
        return f"{found['why_not']} ({found['install']})"
    return ", ".join(f"{name} {version}" for name, version in found["packages"].items() if version)


def _torch_facts(torch: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "error" in torch:
        return [("torch", torch["error"])]
    bf16 = "native bf16" if torch["cpu_bf16"] else "no native bf16 (AMX or AVX-512)"
    return [
        ("torch", f"{torch['threads']} threads, CPU with {bf16}, CUDA {torch['cuda'] or 'not built in'}"),
        ("GPUs", ", ".join(torch["gpus"]) or "none"),
        ("auto takes", f"{torch['auto_device']} for training, in {torch['auto_precision']}"),
    ]
