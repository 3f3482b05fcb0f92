"""The pruner for Optuna, in real studies: what it learns from, when it stops a trial, and what it refuses."""

import pickle
import subprocess
import sys

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from metaprior import DataError, MetaGP, OptionError, Tasks, UnknownNameError
from metaprior.adapters.learning_curves import Curve, Yardstick, replayed
from metaprior.adapters.optuna import LearnedPruner

optuna.logging.set_verbosity(optuna.logging.WARNING)
STEPS = 12


def curve_to(end, start=1.0, rate=0.4, first=0, steps=STEPS):
    """A loss that falls from its start to its end."""
    return {first + k: float(start - (start - end) * -np.expm1(-rate * k)) for k in range(steps)}


def trial_of(curve, state=TrialState.COMPLETE):
    value = list(curve.values())[-1] if state is TrialState.COMPLETE else None
    return create_trial(value=value, intermediate_values=curve, state=state)


def study_of(curves, direction="minimize", **where):
    study = optuna.create_study(direction=direction, **where)
    study.add_trials([trial_of(curve) for curve in curves])
    return study


def changed(curve, scale=1.0, shift=0.0):
    return {step: scale * value + shift for step, value in curve.items()}


def drawn(seed, count=25):
    rng = np.random.default_rng(seed)
    return [curve_to(rng.uniform(0.1, 0.8), rng.normal(1, 0.02), rng.uniform(0.3, 0.5)) for _ in range(count)]


@pytest.fixture(scope="module")
def past():
    """Three studies, on other scales, of which one is maximised."""
    return [
        study_of(drawn(0)),
        study_of([changed(curve, 100, 7) for curve in drawn(1)]),
        study_of([changed(curve, -1, 1) for curve in drawn(2)], "maximize"),
    ]


@pytest.fixture(scope="module")
def pruner(past):
    return LearnedPruner.from_studies(past, budget=0, progress=False)


def run(pruner, ends, direction="minimize", scale=1.0, first=0):
    """Trials that come to these ends, one after another; the steps that each has reported."""
    study = optuna.create_study(direction=direction, pruner=pruner)
    sign = -1 if direction == "maximize" else 1

    def objective(trial):
        value = None
        for step, loss in curve_to(ends[trial.number], first=first).items():
            value = sign * scale * loss
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study.optimize(objective, n_trials=len(ends))
    return study, [len(trial.intermediate_values) for trial in study.trials]


STARTED = [0.5, 0.6, 0.3]
"""Trials that come to their end before any is stopped."""


@pytest.mark.parametrize(("direction", "scale"), [("minimize", 1), ("minimize", 1e3), ("maximize", 1)])
@pytest.mark.parametrize("first", [0, 1])
def test_hopeless_trials_are_stopped_and_the_best_one_is_not(pruner, direction, scale, first):
    study, steps = run(pruner, [*STARTED, 0.8, 0.1, 0.79], direction, scale, first)
    assert steps[:3] == [STEPS] * 3
    assert steps[3] <= STEPS // 2
    assert steps[4] == STEPS  # at its first step it is no better than others, but not behind the best
    assert steps[5] <= steps[3]  # the best is better by now
    assert study.best_trial.number == 4
    assert [trial.state for trial in study.trials[3:]] == [TrialState.PRUNED, TrialState.COMPLETE, TrialState.PRUNED]


def test_a_trial_that_is_not_behind_the_best_is_never_stopped(pruner):
    study = study_of([curve_to(end) for end in STARTED])
    level, short = curve_to(0.3, steps=3), curve_to(0.31, steps=3)
    study.add_trials([trial_of(curve, TrialState.RUNNING) for curve in (level, short)])
    bold = LearnedPruner(pruner.gp, chance=0.999)
    assert [bold.prune(study, trial) for trial in study.trials[-2:]] == [False, True]


def test_a_chance_does_not_depend_on_units_or_direction(pruner):
    chances = []
    for direction, scale in (("minimize", 1.0), ("minimize", 1e-3), ("maximize", -50.0)):
        study = study_of([changed(curve_to(end), scale) for end in STARTED], direction)
        study.add_trial(trial_of(changed(curve_to(0.35, steps=4), scale), TrialState.RUNNING))
        chances.append(pruner.chance_of(study, study.trials[-1]))
    assert 0.001 < chances[0] < 0.999
    assert chances == pytest.approx([chances[0]] * 3, rel=1e-6)


def test_a_stricter_pruner_stops_sooner(pruner):
    ends = [*STARTED, 0.42, 0.6]
    shy, usual, bold = (sum(run(LearnedPruner(pruner.gp, chance=c), ends)[1]) for c in (1e-9, 0.05, 0.5))
    assert shy > usual >= bold
    assert shy > bold


def test_startup_warmup_and_interval_are_kept(pruner):
    ends = [0.1, 0.8, 0.8]
    assert run(LearnedPruner(pruner.gp, n_startup_trials=3), ends)[1] == [STEPS] * 3
    assert run(LearnedPruner(pruner.gp, n_startup_trials=1), ends)[1][1] < STEPS
    stopped = run(LearnedPruner(pruner.gp, n_startup_trials=1, n_warmup_steps=7), ends)[1]
    assert stopped == [STEPS, 8, 8]  # steps begin at 0
    study = study_of([curve_to(end) for end in STARTED])
    study.add_trials([trial_of(curve_to(0.8, steps=steps), TrialState.RUNNING) for steps in range(3, 10)])
    seldom = LearnedPruner(pruner.gp, n_warmup_steps=3, interval_steps=4)
    stopped = [trial.last_step for trial in study.trials[3:] if seldom.prune(study, trial)]
    assert stopped == [3, 7]


@pytest.mark.filterwarnings("error::metaprior.MetapriorWarning")  # notes are of inputs that a user has given
def test_the_last_step_can_be_given(pruner):
    study = study_of([curve_to(end) for end in STARTED])
    study.add_trial(trial_of(curve_to(0.35, steps=4), TrialState.RUNNING))
    asked = study.trials[-1]
    found = [LearnedPruner(pruner.gp, n_steps=steps).chance_of(study, asked) for steps in (4, STEPS - 1, 50)]
    assert found[1] == pruner.chance_of(study, asked)  # that of the best trial
    assert len(set(found)) == 3
    assert LearnedPruner(pruner.gp, n_steps=3).chance_of(study, asked) is None  # it is over


def test_quantiles_are_those_of_the_chance_in_the_units_of_the_study(pruner):
    for direction, scale in (("minimize", 100.0), ("maximize", -100.0)):
        study = study_of([changed(curve_to(end), scale) for end in STARTED], direction)
        study.add_trial(trial_of(changed(curve_to(0.35, steps=4), scale), TrialState.RUNNING))
        asked = study.trials[-1]
        chance = pruner.chance_of(study, asked)
        below = chance if direction == "minimize" else 1 - chance
        found = pruner.quantiles(study, asked, range(4, STEPS), [0.05, below, 0.95])
        assert found.shape == (3, STEPS - 4)
        assert found[1, -1] == pytest.approx(study.best_value, rel=1e-4)
        assert (found[0] < found[2]).all()
    with pytest.raises(DataError, match="trial 0 cannot be predicted yet"):
        pruner.quantiles(optuna.create_study(), study_of([curve_to(0.5)]).trials[0], [5], [0.5])


def test_values_that_are_not_finite_say_nothing_and_alone_stop_a_trial(pruner):
    study = study_of([curve_to(end) for end in STARTED])
    plain, holes = curve_to(0.35, steps=4), curve_to(0.35, steps=4) | {1: np.nan, 2: np.inf}
    thinned = {step: value for step, value in plain.items() if step not in (1, 2)}
    nothing, none = {0: np.nan, 1: np.inf}, {}
    study.add_trials([trial_of(curve, TrialState.RUNNING) for curve in (holes, thinned, nothing, none)])
    with_holes, without, nan, unreported = study.trials[-4:]
    assert pruner.chance_of(study, with_holes) == pruner.chance_of(study, without)
    assert pruner.prune(study, nan)
    assert not pruner.prune(study, unreported)
    assert pruner.chance_of(study, unreported) is None


def test_nothing_is_stopped_before_there_is_a_curve_to_beat(pruner):
    study = optuna.create_study(pruner=pruner)
    study.add_trials([create_trial(value=1.0) for _ in range(6)])  # complete, but nothing was reported
    study.add_trial(trial_of(curve_to(0.9, steps=3), TrialState.RUNNING))
    assert not pruner.prune(study, study.trials[-1])


def test_reports_at_one_step_twice_count_once(pruner):
    study = study_of([curve_to(end) for end in STARTED], pruner=pruner)
    trial = study.ask()
    trial.report(0.9, 0)
    with pytest.warns(UserWarning, match="already reported"):
        trial.report(0.1, 0)
    assert trial.should_prune() in (True, False)
    assert study.trials[-1].intermediate_values == {0: 0.9}


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_it_learns_from_a_storage_as_from_studies(kind, past, pruner, tmp_path):
    if kind == "sqlite":
        storage = f"sqlite:///{tmp_path}/past.db"
    else:
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(f"{tmp_path}/past.log"))
    for k, study in enumerate(past):
        optuna.copy_study(
            from_study_name=study.study_name, from_storage=study._storage, to_storage=storage, to_study_name=f"past {k}"
        )
    optuna.create_study(storage=storage, study_name="two objectives", directions=["minimize", "minimize"])
    names = [f"past {k}" for k in range(3)]
    by_name = LearnedPruner.from_storage(storage, names, budget=0, progress=False)
    study, steps = run(by_name, [*STARTED, 0.8])
    assert (steps, study.trials[-1].state) == (run(pruner, [*STARTED, 0.8])[1], TrialState.PRUNED)
    asked = study.trials[-1]
    assert by_name.chance_of(study, asked) == pytest.approx(pruner.chance_of(study, asked))
    with pytest.raises(UnknownNameError, match=r"unknown study 'past 9'\. Did you mean 'past \d'"):
        LearnedPruner.from_storage(storage, ["past 9"])
    with pytest.raises(DataError, match="'two objectives' has 2 objectives"):
        LearnedPruner.from_storage(storage, ["two objectives"])


def test_it_is_kept_in_a_file_and_pickled(pruner, tmp_path):
    pruner.save(tmp_path / "curves.metaprior")
    loaded = LearnedPruner.load(tmp_path / "curves.metaprior", n_startup_trials=2, chance=0.1)
    assert (loaded.n_startup_trials, loaded.chance) == (2, 0.1)
    study = study_of([curve_to(end) for end in STARTED])
    study.add_trial(trial_of(curve_to(0.35, steps=4), TrialState.RUNNING))
    known = pruner.chance_of(study, study.trials[-1])
    for other in (loaded, pickle.loads(pickle.dumps(pruner))):
        assert other.chance_of(study, study.trials[-1]) == pytest.approx(known, rel=1e-9)


def test_several_trials_at_once(pruner):
    study = study_of([curve_to(end) for end in STARTED], pruner=pruner)

    def objective(trial):
        for step, loss in curve_to(trial.suggest_float("end", 0.7, 0.8)).items():
            trial.report(loss, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return loss

    study.optimize(objective, n_trials=8, n_jobs=2)
    assert {trial.state for trial in study.trials[3:]} == {TrialState.PRUNED}


def test_past_trials_are_replayed_in_their_order_and_pruned_ones_are_among_them():
    ends = [curve_to(end) for end in (0.5, 0.6, 0.4)]
    short = Curve(np.arange(3.0), np.array([1.0, 0.9, 0.85]))
    whole = [Curve(np.arange(float(STEPS)), np.array(list(one.values())), list(one.values())[-1]) for one in ends]
    past = replayed([[short, *whole, short]])
    assert past.tasks.sizes.tolist() == [STEPS, STEPS, 3]  # before the first two none had come to its end
    assert [bool(past.tasks[k].y[-1] < 0) for k in range(2)] == [False, True]  # 0.6 after 0.5, then 0.4
    assert replayed([[short, short], []]) is None
    split = past.asked(past.tasks)
    assert list(split) == ["first 1", "first 2", "first 4"]
    assert split["first 4"].context.sizes.tolist() == [4, 4]
    assert split["first 4"].target.x[:, 0].tolist() == [np.log(STEPS)] * 2  # the end alone, of those that have one
    with pytest.raises(DataError, match="no task that came to its end"):
        past.asked(past.tasks.select([2]))


def test_a_curve_is_told_by_the_best_one_and_by_what_is_usual_in_its_study():
    steps = np.array([0.0, 4.0])
    best = Curve(steps, np.array([1.0, 0.2]), 0.2)
    others = [Curve(steps, np.array([1.1, 0.6]), 0.6), Curve(steps[:1], np.array([0.7]))]
    yardstick = Yardstick.of([others[0], best, others[1]])
    assert yardstick.best is best
    assert yardstick.units == pytest.approx([0.2, 0.4])  # between 0.1 and 0.3; one has got to the end
    behind = yardstick.behind(Curve(np.array([0.0, 2.0, 4.0]), np.array([1.0, 0.6, 0.1])))
    assert behind[:2] == pytest.approx([0, 0])
    assert behind[2] == pytest.approx(np.arcsinh(-0.1 / (0.3 * 0.4)))
    assert yardstick.values_at(np.array([0.0, 2.0, 4.0]), behind) == pytest.approx([1.0, 0.6, 0.1])
    assert Yardstick.of([best]).units == pytest.approx([0.8, 0.8])  # what there was to be learned
    assert (Yardstick.of([best, best, Curve(steps, best.values, 0.2)]).units > 0).all()
    assert Yardstick.of(others[1:]) is None


def test_past_studies_that_say_nothing_are_refused(past):
    empty, unreported = optuna.create_study(study_name="empty"), optuna.create_study(study_name="no curves")
    unreported.add_trials([create_trial(value=float(k)) for k in range(5)])
    failed = optuna.create_study(study_name="failed")
    failed.add_trials([trial_of(curve_to(0.5), TrialState.FAIL) for _ in range(5)])
    for study, seen in (
        (empty, "'empty' has 0 trials"),
        (unreported, "'no curves' has 5 trials, 5 complete, 0 with a curve"),
        (failed, "'failed' has 5 trials, 0 complete, 5 with a curve"),
    ):
        with pytest.raises(DataError, match=f"nothing to learn from: {seen}"):
            LearnedPruner.from_studies([study])
    with pytest.raises(DataError, match="no past studies"):
        LearnedPruner.from_studies([])


def test_a_storage_that_does_not_exist_is_not_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (f"sqlite:///{tmp_path}/nowhere.db", "sqlite:///nowhere.db"):
        with pytest.raises(DataError, match=r"there is no database .*nowhere\.db"):
            LearnedPruner.from_storage(name)
    assert not list(tmp_path.iterdir())


def test_options_and_models_that_make_no_sense_are_refused(pruner):
    for options, said in (
        ({"chance": 0}, "chance=0"),
        ({"chance": 1.5}, "chance=1.5"),
        ({"n_startup_trials": 0}, "n_startup_trials=0: give 1"),
        ({"n_warmup_steps": -1}, "n_warmup_steps=-1"),
        ({"interval_steps": 0}, "interval_steps=0"),
        ({"n_steps": 0}, "n_steps=0"),
    ):
        with pytest.raises(OptionError, match=said):
            LearnedPruner(pruner.gp, **options)
    other = MetaGP("constant", "rbf", max_epochs=2, progress=False).fit(
        Tasks.from_pairs([([0.0, 1.0], [0.0, 1.0]), ([0.0, 1.0], [1.0, 2.0])])
    )
    for gp in (other, MetaGP()):
        with pytest.raises(DataError, match="not learned from studies"):
            LearnedPruner(gp)


def test_without_optuna_the_extra_is_named():
    code = "import sys; sys.modules['optuna'] = None; import metaprior.adapters.optuna"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "metaprior.adapters.optuna needs optuna" in done.stderr
    assert "pip install 'metaprior[optuna]'" in done.stderr


def test_samplers_and_settings_of_a_study_do_not_matter(pruner):
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.TPESampler(seed=0))
    study.add_trials(
        [
            create_trial(
                params={"end": end},
                distributions={"end": FloatDistribution(0, 1)},
                value=list(curve_to(end).values())[-1],
                intermediate_values=curve_to(end),
            )
            for end in STARTED
        ]
    )

    def objective(trial):
        for step, loss in curve_to(trial.suggest_float("end", 0, 1)).items():
            trial.report(loss, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return loss

    study.optimize(objective, n_trials=10)
    assert study.best_value < 0.31
    assert any(trial.state is TrialState.PRUNED for trial in study.trials)
