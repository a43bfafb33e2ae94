"""The pages of the dashboard: the list of runs, the report of chosen runs that grows while they train, and its export."""

from __future__ import annotations

import functools
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from motet.benchmark.benchmark_report_data import collect_benchmark_report
from motet.core.errors import ConfigError, MotetError
from motet.dashboard.access_token import LOOPBACK, TokenGate
from motet.dashboard.run_catalog import RunCatalog
from motet.experiment.commands.compare import compare_runs
from motet.experiment.commands.report_data import collect_run_reports, join_titles, read_progress
from motet.experiment.commands.run_folder import load_config, load_summary
from motet.experiment.commands.run_state import read_run_state
from motet.experiment.deploy.served_run import clients_bring_data
from motet.experiment.recipe.run_config import RunConfig
from motet.report.web import (
    LIST_SCRIPTS,
    PAGE_SCRIPTS,
    PLOTLY,
    STYLE,
    build_list_page,
    build_live_page,
    build_report,
    dump_json,
    read_asset,
)

MAX_RUNS = 100  # in one report
ASSETS = {*PAGE_SCRIPTS, *LIST_SCRIPTS, STYLE, PLOTLY}
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css"}
ASSET_AGE = "private, max-age=86400"  # a new version has another address

Handler = Callable[[Request], Response]


def create_app(folder: Path, token: str) -> Starlette:
    """Return the application that shows the runs in a folder to viewers with the token."""
    pages = DashboardPages(RunCatalog(folder))
    handlers: dict[str, Handler] = {
        "/": pages.show_list,
        "/report": pages.show_report,
        "/export": pages.export_report,
        "/api/runs": pages.list_runs,
        "/api/report": pages.send_report,
        "/api/updates": pages.send_updates,
        "/metrics": pages.send_metrics,
        "/assets/{version}/{name}": pages.send_asset,
    }
    routes = [Route(path, _explain_errors(handler), methods=["GET"]) for path, handler in handlers.items()]
    hosts = [] if token else [Middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK, "[::1]"])]
    return Starlette(routes=routes, middleware=[*hosts, Middleware(TokenGate, token=token)])


def _explain_errors(handler: Handler) -> Handler:
    """Return an endpoint that explains wrong requests. It is a plain function, so it runs in a thread of its own."""

    def endpoint(request: Request) -> Response:
        try:
            return handler(request)
        except MotetError as error:
            return PlainTextResponse(f"{error}\n", status_code=404)

    return endpoint


@dataclass(frozen=True)
class DashboardPages:
    """Answers requests about the runs of a catalog."""

    catalog: RunCatalog

    def show_list(self, request: Request) -> Response:
        return HTMLResponse(build_list_page(self.catalog.root.name))

    def show_report(self, request: Request) -> Response:
        """Send the page of the chosen runs, or of a benchmark. It asks for its data itself."""
        names, benchmark = self._read_selection(request)
        return HTMLResponse(build_live_page(_title(names, benchmark), {"runs": names, "benchmark": benchmark}))

    def send_report(self, request: Request) -> Response:
        return _json(self._collect(*self._read_selection(request)))

    def export_report(self, request: Request) -> Response:
        """Send the report as one file, as `motet report` writes it."""
        data = self._collect(*self._read_selection(request))
        headers = {"Content-Disposition": 'attachment; filename="report.html"'}
        return HTMLResponse(build_report(**data), headers=headers)

    def list_runs(self, request: Request) -> Response:
        return _json({"entries": self.catalog.entries()})

    def send_updates(self, request: Request) -> Response:
        """Send what the given runs have logged after the given cursors, and their states."""
        names, cursors = request.query_params.getlist("run"), request.query_params.getlist("after")
        if len(names) != len(cursors) or len(names) > MAX_RUNS:
            raise ConfigError(
                f"{len(names)} runs and {len(cursors)} cursors; expected as many of each, at most {MAX_RUNS}."
            )
        updates = {}
        for name, cursor in zip(names, cursors, strict=True):
            folder = self.catalog.run_folder(name)
            state = read_run_state(folder)
            config = _load_config(folder, (folder / "config.yaml").stat().st_mtime_ns)
            progress = read_progress(folder, config, load_summary(folder) or {}, cursor)
            updates[name] = {**progress, "state": state.name, "reason": state.reason}
        return _json({"runs": updates})

    def send_metrics(self, request: Request) -> Response:
        """Send the metrics of all runs to Prometheus."""
        from motet.report.prometheus_metrics import metrics_page

        page = metrics_page(self.catalog.statuses)
        return Response(page.render(), media_type=page.content_type)

    def send_asset(self, request: Request) -> Response:
        """Send a script or the style sheet of the package. Only these names exist."""
        name = request.path_params["name"]
        if name not in ASSETS:
            raise ConfigError("there is no such file.")
        headers = {"Cache-Control": ASSET_AGE, "Content-Encoding": "gzip"}
        return Response(_compress_asset(name), media_type=MEDIA_TYPES[Path(name).suffix], headers=headers)

    def _read_selection(self, request: Request) -> tuple[list[str], str | None]:
        names, benchmark = request.query_params.getlist("run"), request.query_params.get("benchmark")
        if benchmark is not None:
            self.catalog.benchmark(benchmark)
        elif not 0 < len(names) <= MAX_RUNS:
            raise ConfigError(f"{len(names)} runs are selected; expected 1 to {MAX_RUNS}.")
        for name in names:
            self.catalog.run_folder(name)
        return names, benchmark

    def _collect(self, names: list[str], benchmark: str | None) -> dict[str, Any]:
        """Return the data of a report, each run with the name by which the page asks for its updates."""
        if benchmark is not None:
            runs, results = collect_benchmark_report(self.catalog.benchmark(benchmark))
            return {"title": results["title"], "runs": runs, "benchmark": results, "comparison": ""}
        folders = {name: self.catalog.run_folder(name) for name in names}
        reports = collect_run_reports(folders)
        comparison = _compare(list(folders.values()))
        return {"title": _title(names, None), "runs": reports, "benchmark": None, "comparison": comparison}


@functools.lru_cache(maxsize=MAX_RUNS)
def _load_config(folder: Path, _changed_at: int) -> RunConfig:
    """Load the configuration of a run, once: to parse it takes longer than the rest of a look at a run."""
    return load_config(folder)


def _compare(folders: list[Path]) -> str:
    """Return whether two finished runs differ significantly; "" if that cannot be said.

    The sentence has the mean of the worst clients, so it is left out if clients bring their own data.
    """
    if len(folders) != 2 or not all(load_summary(folder) for folder in folders):
        return ""
    if any(clients_bring_data(load_config(folder)) for folder in folders):
        return ""
    try:
        return compare_runs(*folders).verdict
    except MotetError:  # for instance, runs of an earlier version
        return ""


def _json(value: Any) -> Response:
    return Response(dump_json(value), media_type="application/json")


@functools.cache
def _compress_asset(name: str) -> bytes:
    return gzip.compress(read_asset(name).encode(), 6)


def _title(names: list[str], benchmark: str | None) -> str:
    return benchmark or join_titles(names)
