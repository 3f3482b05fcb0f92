"""What the noise floor does to the step experiment: all four priors at each of several floors, on held-out functions.

    python benchmarks/noise_floor.py

Steps are noise-free, so the evidence always takes the smallest noise it may; the floor then sets how far a posterior
trusts single points. Test functions are not touched.
"""

from __future__ import annotations

from metaprior import CONFIGURATIONS, MetaGP
from metaprior.paper.experiments.step import HIDDEN, SETTINGS, draw_steps

FLOORS = (0.001, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)


def main() -> None:
    held_out, training = draw_steps(10_000, seed=0).split(0.1, seed=0)
    print("| floor | method | MSE at ñ = 1, 5, 20 | joint log likelihood at ñ = 1, 5, 20 |")
    print("|---:|---|---|---|")
    for floor in FLOORS:
        for name, (mean, kernel) in CONFIGURATIONS.items():
            gp = MetaGP(mean, kernel, noise_floor=floor, hidden=HIDDEN, scale=False, held_out=held_out, progress=False)
            gp.fit(training)
            scores = [gp.score(held_out, n, seed=n) for n in SETTINGS]
            mse, joint = (
                ", ".join(f"{score.summary(metric).mean:.3f}" for score in scores)
                for metric in ("mse", "joint_log_likelihood")
            )
            print(f"| {floor:g} | {name} | {mse} | {joint} |", flush=True)


if __name__ == "__main__":
    main()
