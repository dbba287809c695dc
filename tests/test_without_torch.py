"""Without torch the package works, and says which extra a name needs."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process
# None among the modules: importing it fails, and nothing is found.
HIDDEN = """
import sys
sys.modules["torch"] = None
import apes
from apes import *
"""


@pytest.mark.parametrize("name", ["TorchModel", "Frozen"])
def test_the_extra_is_named(name):
    code = f"{HIDDEN}\ntry:\n    apes.{name}\nexcept apes.ParameterError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == f"apes.{name} needs torch, which is not installed: pip install 'apes-fl[torch]'\n", (
        done.stderr
    )


def test_an_unknown_name_is_an_attribute_error():
    code = f"{HIDDEN}\nassert not hasattr(apes, 'TorchModels')"
    subprocess.run([sys.executable, "-c", code], check=True)
