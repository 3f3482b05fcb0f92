"""Python runs this as it starts, where a test that is watched has started it: the lines that it runs are noted too."""

import atexit
import json
import os
import sys
import uuid
from multiprocessing import util
from pathlib import Path

from campaign.mutation.recorder import FOLDER, INTO, Recorder


def _noted() -> None:
    lines = {file: sorted(numbers) for file, numbers in recorder.taken().items()}
    into = Path(os.environ[INTO])
    if lines and into.is_dir():
        (into / uuid.uuid4().hex).write_text(json.dumps(lines))


if INTO in os.environ:
    recorder = Recorder(os.environ[FOLDER])
    atexit.register(_noted)
    # a worker of `multiprocessing` ends without `atexit`, and forgets as it begins what was to be done at its end
    util.register_after_fork(sys, lambda _: util.Finalize(None, _noted, exitpriority=0))
