"""What the page says about each experiment, and its figures."""

from __future__ import annotations

from metaprior.paper.figures import few, icu, mnist, sinusoid, step, theory
from metaprior.report import Chapter, Picture, performance

_PERFORMANCE = Picture(
    performance,
    "Error and likelihood against the number of context points. Solid lines are ours, with one standard error (often "
    "smaller than the marker); hollow markers and dashed lines are the paper's; dotted lines are limits.",
)

CHAPTERS = {
    "step": Chapter(
        "Step functions (Tab. 1)",
        "A task is a function that jumps once, from 0 to 1 or from 1 to 0, somewhere in [−1, 1]; it is seen at 50 "
        "points of [−2, 2]. Four priors are meta-learned from many such functions: with or without a deep mean, with "
        "a plain or a deep kernel. A new function is then predicted from ñ of its points. How low the error can get "
        "is known here: the bayes limit enumerates all functions that agree with the context, and the linear limit is "
        "the Gaussian process with the step process's own mean and covariance.",
        {
            "performance": _PERFORMANCE,
            "reconstructions": Picture(
                step.reconstructions,
                "A step as each prior sees it from ñ points. The line is the posterior mean of the function, the band "
                "two standard deviations around it.",
            ),
        },
        model=True,
    ),
    "sinusoid": Chapter(
        "Sinusoids (Tab. S1)",
        "A task is a sample of a Gaussian process whose mean is sin(x), seen at 50 points of [−5, 5]. A deep mean is "
        "meta-learned from such samples and compared with a zero mean and with the true one, when a new function is "
        "predicted from ñ of its points. In the rows called refitted the RBF kernel is fitted on each context by its "
        "evidence, as the paper seems to have done; in the others it is known.",
        {
            "samples": Picture(
                sinusoid.samples,
                "Samples of the process, its true mean, and the mean that was learned from such samples.",
            )
        },
    ),
    "mnist": Chapter(
        "MNIST image completion (Tab. S2)",
        "A task is an image of a handwritten digit: a function from the place of a pixel to its brightness. Priors "
        "are meta-learned from the training images, and a test image is completed from ñ of its 784 pixels, chosen at "
        "random. The neural network has no Gaussian process and knows nothing of the context; the mean fit on target "
        "is trained on the context alone, and shows what happens without meta-learning.",
        {
            "performance": _PERFORMANCE,
            "reconstructions": Picture(
                mnist.reconstructions,
                "Digits completed from ñ pixels. The first line is what the methods were given (blue pixels are "
                "unknown), the last is the truth; between them each method's posterior mean.",
            ),
        },
    ),
    "icu": Chapter(
        "Patients in intensive care (Tab. 2)",
        "A task is the measurements of one variable of one patient during 48 hours in intensive care (PhysioNet "
        "Challenge 2012). For each variable one prior is meta-learned from the whole series of earlier patients; a "
        "new patient's second day is then predicted from the first. The variables have different units, so figures "
        "compare within a column only.",
        {
            "residuals": Picture(
                icu.residuals,
                "Are the intervals right? Quantiles of the standardised error (y − mean) / sd on the second day, "
                "against those of a standard normal. On the dashed diagonal a method is calibrated. The 90% interval "
                "is the grey band: a line that leaves it outside the dotted lines covers too much, one that leaves it "
                "between them too little. Beyond ±4 the scale is logarithmic: heavy tails.",
            ),
            "patients": Picture(
                icu.patients,
                "Patients of the test set, three for each variable. The band is the 90% interval for a new "
                "measurement, given the first day (filled points); the hollow points were to be predicted.",
            ),
        },
    ),
    "theory": Chapter(
        "The theory, made to run (Sec. 3 and 4, App. A and B)",
        "The paper's arguments as experiments. Overfitting: the evidence has a complexity term for the kernel and "
        "none for the mean, so a flexible mean may be learned from other tasks but not from the target itself. The "
        "counter-example: a known function that is zero wherever it was observed. Parameterisations: MAML adapts "
        "parameters, so how a network is written matters; a mean is a function, so it does not. Functional PCA: the "
        "Gaussian process whose mean and kernel are linear in a basis.",
        {
            "overfitting": Picture(
                theory.overfitting,
                "Step functions, an RBF kernel that stays fixed, and a mean that is fitted on each target's own "
                "context (red) or learned from other functions (orange). Above: fitting raises the data-fit term to "
                "its maximum, the complexity term does not move, and the error on the points in between says what "
                "that is worth. Below: the error after training, by context points and by the number of meta-tasks "
                "(with 5 context points; bars are over draws of the meta-tasks).",
            ),
            "counter-example": Picture(
                theory.counter_example,
                "Five noiseless observations where the known function is zero. With a zero mean the posterior mean is "
                "zero everywhere, whatever the kernel; with the function as mean it is exact, whatever the kernel. "
                "The bands are two standard deviations under the RBF kernel. Right: with points anywhere the "
                "advantage vanishes as they grow.",
            ),
            "parameterisations": Picture(
                theory.parameterisations,
                "One function written in three ways: as it is, with one layer's weights multiplied and the next one's "
                "divided by the same factor, and with its hidden units in another order. MAML's gradient steps see "
                "the difference of the second; a Gaussian process around the function sees none. Right: the point "
                "halfway between two permuted copies in parameter space is another function.",
            ),
            "components": Picture(
                theory.components,
                "Functional PCA of sea-surface temperatures, a curve per year. Above: the mean curve plus and minus "
                "two standard deviations along each component, and each year's scores. Below: later years from three "
                "months (filled), with 90% intervals; hollow months were to be predicted.",
            ),
        },
    ),
    "few": Chapter(
        "Few meta-tasks",
        "A task is a sample of a Gaussian process whose mean is sin(x), as in the sinusoid experiment, but kernel and "
        "noise are not known and there may be as few as two to learn from. Learned mean and learned both maximise the "
        "evidence, stopping by held-out tasks where there are three or more. Map has a hyper-prior on the parameters, "
        "and the hyper-posterior is an ensemble of means and kernels that the tasks leave probable. Figures are means "
        "over draws of the tasks, each with new functions of its own, and standard errors are over the draws.",
        {
            "by-number": Picture(
                few.by_number,
                "New functions from five of their points, by the number of meta-tasks that the priors were learned "
                "from. Bars are one standard error over draws of them; log likelihoods below −2 are not drawn.",
            )
        },
    ),
}
