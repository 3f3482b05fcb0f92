"""What needs a library that is not there says which extra brings it."""

import pytest

from metaprior.errors import MetapriorError
from metaprior.extras import check_installed, needs


def test_what_is_missing_is_named_with_the_extra_that_brings_it():
    check_installed("nobody", "none", ["torch", "json"])
    with pytest.raises(MetapriorError, match=r"they needs no_such and nor_this, .* pip install 'metaprior\[some\]'"):
        check_installed("they", "some", ["torch", "no_such", "nor_this"])


def test_an_import_inside_becomes_the_same_error():
    with needs("nobody", "none"):
        import json  # noqa: F401
    with pytest.raises(ImportError, match=r"it needs no_such, .* pip install 'metaprior\[some\]'"), needs("it", "some"):
        import no_such  # noqa: F401
