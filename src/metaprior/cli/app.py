"""The commands. Each only reads its options, calls the library and shows the outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import metaprior
from metaprior.bulk import Question
from metaprior.cli.bulk import predict_buckets
from metaprior.cli.common import Screen, chosen_contexts, read_tasks
from metaprior.cli.compare import check_outputs, compare_methods
from metaprior.cli.data import data_app
from metaprior.cli.doctor import examine
from metaprior.cli.evaluate import evaluate_model
from metaprior.cli.fit import check_out, columns_of_start, fit_model, start_of
from metaprior.cli.fit_shards import Asked, check_workers, fit_shards
from metaprior.cli.given import Given, named_columns, split_names
from metaprior.cli.predict import predict_model
from metaprior.cli.reproduce import reproduce_all, reproduce_experiment
from metaprior.cli.serve import serve_models
from metaprior.cli.shard import shard_table
from metaprior.cli.show import show_model, write_page_of
from metaprior.cli.suggest import suggest_points
from metaprior.errors import OptionError
from metaprior.frames import Measuring, Wanted
from metaprior.learning import OPTIMIZERS
from metaprior.methods import named_methods
from metaprior.model import MetaGP, load
from metaprior.options import check_removed
from metaprior.paper import EXPERIMENTS, Options
from metaprior.priors import KERNELS, MEANS
from metaprior.selection import Auto, check_several
from metaprior.tasks import Tasks, support_hints

app = typer.Typer(
    help="Meta-learn Gaussian-process priors from many small related tasks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)
app.add_typer(data_app, name="data")


def _version(show: bool) -> None:
    if show:
        Console().print(f"metaprior {metaprior.__version__}", highlight=False)
        raise typer.Exit


def _removed_option(param: typer.CallbackParam, given: bool) -> None:
    """Answer an option of earlier versions with what to do instead."""
    if given:
        check_removed([str(param.name)], "--")


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Meta-learn Gaussian-process priors from many small related tasks."""


OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace files that would else be left alone.")]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="A page on which the model is tried in a browser: one file, no server.")
]


@app.command(epilog="Example: metaprior reproduce step --methods 'learned mean,learned both' --out out/step")
def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"One of: {', '.join(EXPERIMENTS)}; or all.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for results, table and figures; default out/EXPERIMENT.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    methods: Annotated[str | None, typer.Option(help="Rows to run, separated by commas; default all.")] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            help=f"How the priors are learned: {', '.join(OPTIMIZERS)} (algorithm1: the paper's SGD); "
            "default the experiment's own choice."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version that takes a few seconds.")] = False,
    add: Annotated[
        bool, typer.Option("--add", help="Keep the other rows of an earlier run in --out, and add these.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run in --out that was stopped: complete rows are kept.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data of mnist and icu; default METAPRIOR_DATA, then the cache.")
    ] = None,
    device: DeviceOption = "cpu",
    overwrite: OverwriteOption = False,
) -> None:
    """Run an experiment of the paper: table beside the paper's, claims judged, figures, and a page with all of it."""
    rows = tuple(name.strip() for name in methods.split(",")) if methods else ()
    given = {"seed": seed, "methods": rows, "optimizer": optimizer, "quick": quick, "data": data, "device": device}
    options = Options(**given)  # type: ignore[arg-type]
    folder = out or Path("out") / experiment
    if experiment == "all":
        if add:
            raise OptionError("--add is for one experiment; all of them go on with --resume.")
        reproduce_all(options, folder, resume=resume, overwrite=overwrite)
    else:
        reproduce_experiment(experiment, options, folder, add=add, resume=resume, overwrite=overwrite)


_FILES = "A CSV, TSV, JSON lines, Parquet or Feather file (text also .gz or .zip)"
TableArgument = Annotated[
    str | None, typer.Argument(help=f"{_FILES}, - for standard input, or elnino or digits; or --sql instead.")
]
SqlOption = Annotated[
    str | None,
    typer.Option("--sql", help="A query instead of TABLE, such as 'select patient, hour, pulse from measured'."),
]
DbOption = Annotated[
    str | None,
    typer.Option(
        "--db",
        help="The database of --sql, which is only read: a file of SQLite or DuckDB. Without one, DuckDB asks files: "
        "\"select * from 'past/*.parquet'\".",
    ),
]
WideOption = Annotated[
    str | None,
    typer.Option(
        "--wide",
        help="One row per task: the columns that are its points, such as 'week_*'. The number in a name is the input "
        "(week, or --x), a cell the target (value, or --y); without --task, rows are counted.",
    ),
]
TaskOption = Annotated[
    str | None, typer.Option("--task", help="Column that names the task; several separated by commas.")
]
XOption = Annotated[str | None, typer.Option("--x", help="Input column; several separated by commas.")]
YOption = Annotated[str | None, typer.Option("--y", help="Target column; several separated by commas.")]
MissingOption = Annotated[str, typer.Option(help="Rows with missing values: error, or drop (and say so).")]
TaskXOption = Annotated[
    str | None,
    typer.Option(
        "--task-x", help="Columns that say something of a task as a whole, such as age,diet: constant within each task."
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Column of groups of tasks that share a fate, such as the school of a pupil: they are held out whole, so "
        "that everything told holds for tasks of new groups.",
    ),
]
SupportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--support",
        help="What the target can be: 0, (0 or more), 0,1 or 3,15; of one of several targets: wind=0, (and again for "
        "others). Means, bounds and draws stay within it.",
    ),
]
IntegerOption = Annotated[bool, typer.Option("--integer", help="The target is a whole number.")]
DelimiterOption = Annotated[str | None, typer.Option(help="Of a text file; default what its header has: , tab ; or |.")]
SeedOption = Annotated[int, typer.Option(help="Seed of everything random.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")]
JsonOption = Annotated[bool, typer.Option("--json", help="The outcome as JSON on standard output.")]
ContextOption = Annotated[str | None, typer.Option(help="Numbers of random context points, such as 1,3,5.")]
UntilOption = Annotated[
    str | None, typer.Option(help="Context: the points up to a value of an input, such as hour=24 or day=2020-03-01.")
]


WorkersOption = Annotated[
    int | None, typer.Option(help="Processes that share the buckets of shards; default one for each core.")
]
RayOption = Annotated[
    str | None, typer.Option("--ray", help="Address of a Ray cluster on which the workers run: HOST:PORT, or auto.")
]


MeanOption = Annotated[
    str | None,
    typer.Option(
        help=f"One of: {', '.join(MEANS)}; constant with --kernel alone. Without mean and kernel the prior is chosen."
    ),
]
KernelOption = Annotated[str | None, typer.Option(help=f"One of: {', '.join(KERNELS)}; rbf with --mean alone.")]
FromOption = Annotated[
    str | None,
    typer.Option("--from", help="A model of one mean and kernel, to go on learning from with the tasks of this table."),
]
BudgetOption = Annotated[
    float | None, typer.Option(help="Seconds for trying priors; the quick ones are always tried. With 0, these alone.")
]
ThoroughOption = Annotated[
    bool, typer.Option("--thorough", help="Try every prior on every fold of all tasks, however long it takes.")
]
RungsOption = Annotated[
    str | None,
    typer.Option(help="Priors to choose from, such as fpca,mixture; default all that suit the number of tasks."),
]
DeviceOption = Annotated[
    str, typer.Option(help="Where to compute: cpu, cuda (a GPU), or auto: a GPU where there is one.")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on from where a stopped run was; with --budget 0, choose from it.")
]


@app.command(epilog="Example: metaprior fit icu.csv --task patient --x hour --y pulse --out pulse.metaprior")
def fit(
    table: TableArgument = None,
    task: TaskOption = None,
    x: XOption = None,
    y: YOption = None,
    wide: WideOption = None,
    sql: SqlOption = None,
    db: DbOption = None,
    task_x: TaskXOption = None,
    cluster: ClusterOption = None,
    support: SupportOption = None,
    integer: IntegerOption = False,
    out: Annotated[Path | None, typer.Option(help="The model file to write; default TABLE's name.metaprior.")] = None,
    mean: MeanOption = None,
    kernel: KernelOption = None,
    from_model: FromOption = None,
    budget: BudgetOption = None,
    thorough: ThoroughOption = False,
    rungs: RungsOption = None,
    resume: ResumeOption = False,
    epochs: Annotated[int | None, typer.Option(help="Most epochs of learning.")] = None,
    missing: MissingOption = "error",
    delimiter: DelimiterOption = None,
    device: DeviceOption = "cpu",
    seed: SeedOption = 0,
    overwrite: OverwriteOption = False,
    quiet: QuietOption = False,
    html: HtmlOption = None,
    as_json: JsonOption = False,
    workers: WorkersOption = None,
    ray: RayOption = None,
) -> None:
    """Meta-learn a prior from a table of past tasks, or a folder of shards, and write it to one file."""
    screen = Screen(quiet, as_json)
    given = Given.of(table, sql, db, wide)
    target = check_out(out, given, from_model, html, resume=resume, overwrite=overwrite)
    columns = named_columns(given, task, x, y, task_x)
    known = {"cluster": cluster, "support": support or (), "integer": integer}
    effort = {"budget": budget, "thorough": thorough, "rungs": tuple(split_names(rungs)) if rungs else ()}
    check_workers(given, workers, ray, device)
    unnamed = mean is None and kernel is None and from_model is None
    mean, kernel = _structure(mean, kernel, from_model, epochs, effort, screen)
    if given.folder is not None:
        how = {"mean": mean, "kernel": kernel, "seed": seed, "progress": not quiet}
        how |= {"max_epochs": epochs} if mean or kernel or from_model else effort  # type: ignore[arg-type]
        asked = Asked(given.folder, target, columns, known, missing, how, from_model, resume, quiet, as_json)
        fit_shards(asked, workers, ray)
        gp = load(target)
    else:
        start = start_of(from_model, mean, kernel)
        columns = columns_of_start(columns, start)
        tasks = read_tasks(given, columns, missing=missing, delimiter=delimiter, screen=screen, **known)  # type: ignore[arg-type]
        if unnamed:
            check_several(tasks)
        if start is None or not start.trained_on_.possible:
            screen.note(*support_hints(tasks))
        gp = _model(tasks, mean, kernel, start, epochs, device, effort, seed, screen)
        fit_model(tasks, gp, target, start=start, resume=resume, screen=screen)
    if html is not None:
        write_page_of(gp, target.name, html, screen)


def _structure(
    mean: str | None, kernel: str | None, from_model: str | None, epochs: int | None, effort: dict[str, Any],
    screen: Screen,
) -> tuple[str | None, str | None]:  # fmt: skip
    """Mean and kernel of the one prior that `fit` learns; neither where it is chosen or goes on from a model."""
    if epochs is not None and epochs < 1:
        raise OptionError(f"--epochs {epochs}: give 1 or more.")
    Auto(**effort)  # a budget below 0 is told whatever is learned
    named = mean is not None or kernel is not None or from_model is not None
    if epochs is not None and not named:
        screen.say(f"note: --epochs {epochs}: of one prior, so mean and kernel are deep and nothing is chosen.")
        mean = kernel = "deep"
    if named or epochs is not None:
        _note_nothing_is_chosen(effort, screen)
    return mean, kernel


def _note_nothing_is_chosen(effort: dict[str, Any], screen: Screen) -> None:
    if effort["budget"] is not None or effort["thorough"] or effort["rungs"]:
        screen.say("note: --budget, --thorough and --rungs are of choosing a prior, and here nothing is chosen.")


def _model(
    tasks: Tasks, mean: str | None, kernel: str | None, start: MetaGP | None, epochs: int | None, device: str,
    effort: dict[str, Any], seed: int, screen: Screen,
) -> MetaGP:  # fmt: skip
    """What `fit` learns: a prior of the structure that was asked for, or the one that suits the tasks."""
    options: dict[str, Any] = {"seed": seed, "progress": False if screen.quiet else "meta-learning"}
    one_row = int(tasks.sizes.max()) < 2
    unnamed = mean is None and kernel is None and start is None
    if unnamed and not one_row:
        label = False if screen.quiet else "choosing a prior"
        return MetaGP(**options | effort | {"progress": label, "device": device})
    if unnamed:
        _note_nothing_is_chosen(effort, screen)
    options |= {"max_epochs": epochs, "device": device}
    if one_row:
        screen.say(
            "every task has one row: there is nothing to learn a kernel from, so only the mean and noise are learned."
        )
        options["learn"] = ("mean", "noise")
    if start is not None:
        return start.like_new(**options)
    return MetaGP("deep", "deep", **options) if unnamed else MetaGP(mean, kernel, **options)


@app.command(epilog="Example: metaprior predict elnino.metaprior elnino --at 1:12:1 --out predictions.csv")
def predict(
    model: Annotated[str, typer.Argument(help="A model file.")],
    at: Annotated[
        str,
        typer.Option(
            help="Where: 3, 1,2,3 or START:STOP:STEP (with its end); dates too, such as 2020-02-15:2020-03-15:7d "
            "(steps in w, d, h, min, s); several inputs by name, such as hour=0:48:1,dose=5,10 (all combinations; a "
            "part without a name is of the input before it); a second table; or missing (rows without target)."
        ),
    ],
    table: Annotated[
        str | None,
        typer.Argument(
            help=f"{_FILES}, - for standard input, elnino or digits; or a folder of shards; or --sql instead."
        ),
    ] = None,
    wide: WideOption = None,
    sql: SqlOption = None,
    db: DbOption = None,
    out: Annotated[
        str,
        typer.Option(
            help="The table to write: .csv, .parquet, or - for standard output; of shards, a folder of Parquet files, "
            "one for each bucket: a run that was stopped goes on with what it lacks."
        ),
    ] = "-",
    level: Annotated[float, typer.Option(help="Probability of the interval from lower to upper.")] = 0.9,
    latent: Annotated[bool, typer.Option("--latent", help="Of the function, not of a new observation.")] = False,
    quantiles: Annotated[str | None, typer.Option(help="More columns: quantiles such as 0.1,0.5,0.9.")] = None,
    samples: Annotated[int, typer.Option(help="More columns: so many draws of whole functions.")] = 0,
    fallback: Annotated[bool, typer.Option("--fallback", hidden=True, callback=_removed_option)] = False,
    plot: Annotated[Path | None, typer.Option(help="Folder for a picture of each task.")] = None,
    workers: WorkersOption = None,
    ray: RayOption = None,
    missing: MissingOption = "error",
    delimiter: DelimiterOption = None,
    device: DeviceOption = "cpu",
    seed: SeedOption = 0,
    overwrite: OverwriteOption = False,
    quiet: QuietOption = False,
) -> None:
    """Condition on each task's rows and predict: mean, deviation and bounds, as a table."""
    try:
        shares = tuple(float(part) for part in quantiles.split(",")) if quantiles else ()
    except ValueError:
        raise OptionError(f"--quantiles {quantiles}: give numbers between 0 and 1, such as 0.1,0.5,0.9.") from None
    wanted = Wanted(level, latent, shares, samples, seed, missing)  # type: ignore[arg-type]
    options: dict[str, Any] = {"plot": plot, "overwrite": overwrite, "screen": Screen(quiet)}
    given = Given.of(table, sql, db, wide)
    check_workers(given, workers, ray, device)
    if given.folder is not None:
        predict_buckets(Question(model, given.folder, at, wanted, delimiter), out, workers=workers, ray=ray, **options)
        return
    predict_model(model, given, at, out, wanted, delimiter=delimiter, device=device, **options)


@app.command(epilog="Example: metaprior suggest elnino.metaprior 2011.csv --at 4:12:1 --points 3 --plot pictures")
def suggest(
    model: Annotated[str, typer.Argument(help="A model file.")],
    table: Annotated[
        str | None,
        typer.Argument(
            help="What is known of the tasks: a CSV, TSV, Parquet or Feather file (also .gz), - for standard input, "
            "elnino or digits. Without: a new task of which nothing is known."
        ),
    ] = None,
    *,
    at: Annotated[
        str,
        typer.Option(
            help="Where it may be measured, as in predict: 3, 1,2,3 or START:STOP:STEP; dates too; several inputs by "
            "name (hour=0:48:1,dose=5,10); a second table; or missing (rows without target). Known points are not "
            "suggested again."
        ),
    ],
    points: Annotated[
        int, typer.Option(help="How many you will take: they are chosen together. Ask again for the others after each.")
    ] = 1,
    about: Annotated[
        str | None,
        typer.Option(help="Points that the measurements are to tell most about, such as 48; default all of --at."),
    ] = None,
    given: Annotated[
        str | None,
        typer.Option(help="Without a table: what is known of the new task as a whole, such as diet=rich,age=61."),
    ] = None,
    out: Annotated[str, typer.Option(help="The table to write: .csv, .parquet, or - for standard output.")] = "-",
    level: Annotated[float, typer.Option(help="Probability of the bands in the pictures.")] = 0.9,
    plot: Annotated[Path | None, typer.Option(help="Folder for a picture of each task.")] = None,
    missing: MissingOption = "error",
    delimiter: DelimiterOption = None,
    seed: SeedOption = 0,
    overwrite: OverwriteOption = False,
    quiet: QuietOption = False,
) -> None:
    """Where to measure each task next, and what each point is expected to buy: a table, in order.

    Points are chosen so that as little as possible is left open about the task's curve: sd_before and sd_after are its
    standard deviation (the root of its mean square over the points that are asked about) before and after each.
    """
    asked = Measuring(points, None, seed, missing)  # type: ignore[arg-type]
    options: dict[str, Any] = {"plot": plot, "overwrite": overwrite, "screen": Screen(quiet)}
    suggest_points(model, table, at, about, given, out, asked, level=level, delimiter=delimiter, **options)


@app.command(epilog="Example: metaprior evaluate elnino.metaprior new-years.csv --context 1,3,6")
def evaluate(
    model: Annotated[str, typer.Argument(help="A model file.")],
    table: TableArgument = None,
    wide: WideOption = None,
    sql: SqlOption = None,
    db: DbOption = None,
    cluster: ClusterOption = None,
    context: ContextOption = None,
    context_until: UntilOption = None,
    missing: MissingOption = "error",
    delimiter: DelimiterOption = None,
    device: DeviceOption = "cpu",
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Score a model on tasks it has not seen, beside the last value and a Gaussian process for each task alone."""
    screen = Screen(quiet, as_json)
    options = {"missing": missing, "delimiter": delimiter, "seed": seed, "screen": screen, "cluster": cluster}
    options["device"] = device
    evaluate_model(model, Given.of(table, sql, db, wide), context, context_until, **options)  # type: ignore[arg-type]


@app.command(epilog="Example: metaprior compare icu.csv --task patient --x hour --y pulse --out best.metaprior")
def compare(
    table: TableArgument = None,
    task: TaskOption = None,
    x: XOption = None,
    y: YOption = None,
    wide: WideOption = None,
    sql: SqlOption = None,
    db: DbOption = None,
    task_x: TaskXOption = None,
    cluster: ClusterOption = None,
    support: SupportOption = None,
    integer: IntegerOption = False,
    context: ContextOption = None,
    context_until: UntilOption = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help=f"Separated by commas; default {', '.join(named_methods(lambda one: one.compared))}. There are also "
            f"{', '.join(named_methods(lambda one: one.make is not None and not one.compared))}."
        ),
    ] = None,
    folds: Annotated[int, typer.Option(help="Parts of the tasks for cross-validation.")] = 5,
    report: Annotated[Path, typer.Option(help="Folder for the results and the page.")] = Path("out/compare"),
    out: Annotated[
        Path | None, typer.Option(help="A model file for the recommended method, fitted on all tasks.")
    ] = None,
    missing: MissingOption = "error",
    delimiter: DelimiterOption = None,
    seed: SeedOption = 0,
    overwrite: OverwriteOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Which prior suits these tasks? Methods cross-validated over tasks; one sentence to act on."""
    screen = Screen(quiet, as_json)
    given = Given.of(table, sql, db, wide)
    check_outputs(report, out, given, overwrite)
    columns = named_columns(given, task, x, y, task_x)
    known = {"cluster": cluster, "support": support or (), "integer": integer}
    tasks = read_tasks(given, columns, missing=missing, delimiter=delimiter, screen=screen, **known)  # type: ignore[arg-type]
    screen.note(*support_hints(tasks))
    names = split_names(methods) if methods else []
    contexts = chosen_contexts(context, context_until, tasks, seed, screen)
    compare_methods(tasks, contexts, names, folds, seed, report, out, screen)


@app.command(epilog="Example: metaprior show elnino.metaprior --html elnino.html")
def show(
    model: Annotated[str, typer.Argument(help="A model file.")],
    pictures: Annotated[Path | None, typer.Option(help="Folder for a page of pictures.")] = None,
    html: HtmlOption = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """What a model file holds, pictures of the prior in it, and a page on which it can be tried."""
    show_model(model, pictures, html, Screen(as_json=as_json), overwrite=overwrite)


@app.command(epilog="Example: metaprior shard big.parquet --task id --out shards --buckets 256")
def shard(
    table: Annotated[str, typer.Argument(help=f"{_FILES}, a folder of Parquet files, elnino or digits.")],
    task: Annotated[str, typer.Option(help="Column that names the task; several separated by commas.")],
    out: Annotated[Path, typer.Option(help="Folder for the shards.")],
    buckets: Annotated[int, typer.Option(help="Files of whole tasks; each has to fit into memory, with room.")] = 256,
    columns: Annotated[str | None, typer.Option(help="Further columns to keep; default all.")] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Columns of a text file that are names, not numbers: kept as written, such as 007."),
    ] = None,
    delimiter: DelimiterOption = None,
    overwrite: OverwriteOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """A table that does not fit into memory: files of whole tasks, to learn from and to predict bucket by bucket.

    One pass, in bounded memory. A run that was stopped goes on where it was.
    """
    kept = split_names(columns) if columns else None
    names = split_names(text) if text else []
    options = {"buckets": buckets, "columns": kept, "text": names, "delimiter": delimiter, "overwrite": overwrite}
    shard_table(table, out, split_names(task), **options, screen=Screen(quiet, as_json))  # type: ignore[arg-type]


@app.command(epilog="Example: metaprior serve elnino.metaprior --port 8000")
def serve(
    models: Annotated[list[str], typer.Argument(help="Model files.", metavar="MODEL...")],
    host: Annotated[str, typer.Option(help="Where to listen; anything but this machine needs --token or --open.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 for any that is free.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="METAPRIOR_TOKEN", help="What others have to know; better METAPRIOR_TOKEN.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Anyone who reaches it may ask.")] = False,
    allowed_host: Annotated[list[str] | None, typer.Option(help="A name that it is asked by: a proxy's.")] = None,
    cors: Annotated[list[str] | None, typer.Option(help="Origin of a page elsewhere that may ask.")] = None,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.")] = 64_000_000,
    max_rows: Annotated[int, typer.Option(help="Rows of a table.")] = 1_000_000,
    max_points: Annotated[int, typer.Option(help="Points that are asked for.")] = 1_000_000,
    max_known: Annotated[int, typer.Option(help="Known rows of one task.")] = 5_000,
    seconds: Annotated[float, typer.Option(help="How long a request may take.")] = 30.0,
    at_once: Annotated[int, typer.Option(help="Requests that are worked on together.")] = 32,
    log: Annotated[str, typer.Option(help="A line for each request: text, json or none.")] = "text",
) -> None:
    """Serve models: a page for people, rows and tensors for programs. Listens to this machine alone unless told."""
    allowed, origins = tuple(allowed_host or ()), tuple(cors or ())
    limits = {"max_body": max_body, "max_rows": max_rows, "max_points": max_points, "max_known": max_known}
    who = {"host": host, "port": port, "token": token, "open_": open_, "allowed_hosts": allowed, "origins": origins}
    serve_models(models, {**who, **limits, "seconds": seconds, "at_once": at_once, "log": log})


@app.command(epilog="Example: metaprior doctor --json")
def doctor(as_json: JsonOption = False) -> None:
    """What there is to work with: versions, threads, a GPU, datasets, extras. Good to have beside a report."""
    examine(Screen(as_json=as_json))
