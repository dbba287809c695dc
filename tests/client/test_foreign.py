"""A stranger's mechanism: what it is given, and what is checked of what it draws."""

from dataclasses import dataclass

import cipher_words
import numpy as np
import pytest

from apes.client.foreign import Draws, ForeignRandomizer
from apes.client.randomizer import Place
from apes.errors import ParameterError
from apes.mathematics.randomness import Purpose, SimulationSource

CLIP = 0.1
SOURCE = SimulationSource(31, 4)
BUDGETS = np.array([0.5, 2.0])
UPDATES = np.array([[0.3, -0.05, -9.0], [0.1, 3e38, 0.0]], dtype=np.float32)


@dataclass(frozen=True)
class Mechanism:
    """Draws what a function makes of the clipped updates."""

    make: object = lambda updates: updates.copy()
    levels: int | None = None
    clip: float = CLIP

    def draw(self, updates, budgets, draws):
        assert budgets is BUDGETS
        assert draws.shape == updates.shape
        return self.make(updates)


def drawn(mechanism, updates=UPDATES):
    return ForeignRandomizer(mechanism).draw(updates, BUDGETS, Place(3, 5), SOURCE)


def test_updates_are_clipped_before_a_stranger_sees_them():
    bound = np.nextafter(np.float32(CLIP), np.float32(0))
    assert drawn(Mechanism()).tolist() == [[bound, np.float32(-0.05), -bound], [bound, bound, 0.0]]
    assert UPDATES[1, 1] == np.float32(3e38)


def test_updates_that_are_not_finite_never_get_there():
    with pytest.raises(ParameterError, match=r"^updates\[0, 1\] must be finite, got nan$"):
        drawn(Mechanism(pytest.fail), np.array([[0.0, np.nan]], dtype=np.float32))


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        (Mechanism(lambda updates: updates.astype(np.float64)), r"an array of float32 \(2, 3\), got float64 \(2, 3\)"),
        (Mechanism(lambda updates: updates, levels=2), r"an array of uint8 \(2, 3\), got float32 \(2, 3\)"),
        (Mechanism(lambda updates: updates[:, 1:]), r"an array of float32 \(2, 3\), got float32 \(2, 2\)"),
        (Mechanism(lambda updates: updates.tolist()), r"an array of float32 \(2, 3\), got list"),
    ],
)
def test_what_is_no_report_is_named(mechanism, said):
    with pytest.raises(ParameterError, match=rf"^Mechanism.draw must return {said}$"):
        drawn(mechanism)


def test_a_report_that_is_not_finite_is_named():
    with pytest.raises(ParameterError, match=r"^Mechanism.draw\[0, 0\] must be finite, got inf$"):
        drawn(Mechanism(lambda updates: np.full_like(updates, np.inf)))


def test_uniform_numbers_belong_to_user_coordinate_stage_and_purpose():
    whole = Draws(Place(3, 5), SOURCE, (4, 6)).uniforms()
    assert ((whole >= 0) & (whole < 1)).all()
    assert np.unique(whole).size == 24
    assert (Draws(Place(4, 7), SOURCE, (2, 3)).uniforms() == whole[1:3, 2:5]).all()
    places = Place(3, 5), Place(3, 5, Purpose.PADDING)
    others = [Draws(place, SOURCE, (4, 6)).uniforms(stage) for place in places for stage in (0, 1)]
    assert np.unique(others).size == 4 * 24


@pytest.mark.parametrize("stage", [0, 7, 2**32 - 1])
def test_uniform_numbers_are_those_of_the_stream(stage):
    """The upper 53 bits of a coordinate's number."""
    uniforms = Draws(Place(3, 250), SOURCE, (2, 300)).uniforms(stage)
    material, stream = SOURCE.run_key.material, int(SOURCE.stream(Purpose.FOREIGN))
    for user, row in enumerate(uniforms):
        numbers = cipher_words.numbers(material, 250, 300, stage, 3 + user, stream)
        assert (row == (numbers >> np.uint64(11)).astype(np.float64) / 2**53).all()


@pytest.mark.parametrize("stage", [-1, 2**32])
def test_a_stage_that_has_no_address_is_refused(stage):
    with pytest.raises(ParameterError, match=rf"stage must be in \[0, 4294967295\], got {stage}"):
        Draws(Place(0, 0), SOURCE, (1, 1)).uniforms(stage)


@pytest.mark.parametrize(("place", "name"), [(Place(2**32 - 1, 0), "users"), (Place(0, 2**32 - 2), "coordinates")])
def test_a_block_without_addresses_of_its_own_is_refused(place, name):
    with pytest.raises(ParameterError, match=rf"{name} must be numbered within \[0, 4294967296\), got"):
        Draws(place, SOURCE, (2, 3)).uniforms()
