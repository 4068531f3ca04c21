"""The notebooks: executed here, held to their stored outputs, and the numbers of their last cell to what was published.

The published numbers are those of figure 3.1, figure 4.2 and the slides. The simulation was fed them, so this tests the
analysis and the text around it. Notebook 5 records: it needs sigrok-cli and namespaces, as tests/capture do.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import nbformat
import notebookruns
import pytest
from conftest import REPOSITORY
from nbformat import NotebookNode
from notebookruns import figures

FOLDER = REPOSITORY / "notebooks"
Executed = Callable[[str], tuple[NotebookNode, dict]]


@pytest.fixture
def executed(tmp_path: Path, update_golden: bool) -> Executed:
    """Run a notebook and hold it to its stored outputs; the run, and the value of its last cell."""

    def execute(name: str) -> tuple[NotebookNode, dict]:
        path = FOLDER / name
        stored, ran = nbformat.read(path, as_version=4), notebookruns.run(path, tmp_path / name)
        if update_golden:
            nbformat.write(notebookruns.stored_again(stored, ran), path)
        else:
            assert not notebookruns.differences(stored, ran), "pytest --update-golden stores the new ones"
        return ran, ast.literal_eval(ran.cells[-1].outputs[0]["data"]["text/plain"])

    return execute


def test_all_notebooks_are_tested() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.ipynb")) == [
        "1-first-look.ipynb",
        "10-unknown-card.ipynb",
        "11-campaign.ipynb",
        "2-figure-3.1.ipynb",
        "3-streaming.ipynb",
        "4-equation-2.1.ipynb",
        "5-recording.ipynb",
        "6-latency-and-switch.ipynb",
        "7-streams-and-loss.ipynb",
        "8-switch-under-the-microscope.ipynb",
        "9-what-is-wrong.ipynb",
    ]


def test_first_look(executed: Executed) -> None:
    book, numbers = executed("1-first-look.ipynb")
    assert figures(book) == 2
    # README.txt of the trace: 80 requests of 64 bytes, 20 responses each of 64, 512, 1024, 1500.
    assert numbers["frames"] == numbers["received"] == 160
    assert numbers["sizes"] == [64, 512, 1024, 1500]
    assert numbers["problems"] == 0
    assert 0.1 < numbers["occupancy"] < 0.15


def test_figure_3_1(executed: Executed) -> None:
    book, numbers = executed("2-figure-3.1.ipynb")
    assert figures(book) == 3
    assert numbers["gap_64_us"] == pytest.approx(9.4, abs=0.01)
    assert numbers["gap_1500_us"] == pytest.approx(20.56, abs=0.02)
    assert numbers["t_nic_64_us"] == pytest.approx(4.34, abs=0.005)
    assert numbers["t_nic_1500_us"] == pytest.approx(4.18, abs=0.01)
    assert numbers["gap_slope"] == pytest.approx(0.00777, abs=2e-5)
    assert numbers["R_send"] == pytest.approx(0.00758, rel=0.01)
    assert numbers["R_recv"] == pytest.approx(0.00792, rel=0.01)
    assert numbers["forwarding"] == "deviates"
    assert numbers["pieces"] == 4


def test_streaming(executed: Executed) -> None:
    book, numbers = executed("3-streaming.ipynb")
    assert figures(book) == 4
    assert numbers["spacing_a_us"] == pytest.approx(22.4, abs=0.05)
    assert numbers["spacing_c_us"] == pytest.approx(20.56, abs=0.05)
    assert numbers["group_frames"] == pytest.approx(25, abs=1)
    assert numbers["group_csr_us"] == pytest.approx(40, abs=2)
    assert numbers["group_idle_us"][0] > 59
    assert numbers["group_idle_us"][1] < 81
    assert numbers["busy_370dle_us"] == pytest.approx(4.7, abs=0.05)
    assert 0.43 <= numbers["occupancy_370dle"] <= 0.45
    assert numbers["busy_p4dp6_us"] == pytest.approx(5.14, abs=0.05)
    assert 0.67 <= numbers["occupancy_p4dp6"] <= 0.685
    assert numbers["period_sk9843_10us"] == pytest.approx(11.73, abs=0.02)


def test_equation_2_1(executed: Executed) -> None:
    book, numbers = executed("4-equation-2.1.ipynb")
    assert figures(book) == 3
    assert numbers["model_slope"] == pytest.approx(0.0235, rel=0.01)
    assert numbers["slope"] == pytest.approx(0.0235, rel=0.01)
    assert numbers["intercept_us"] == pytest.approx(26.32, rel=0.01)
    assert numbers["t_sw_us"] == pytest.approx(8.70, abs=3 * numbers["t_sw_sigma_us"])
    assert numbers["T_64_us"] == pytest.approx(26.32 + 0.0235 * 64, rel=0.01)
    assert numbers["T_1500_us"] == pytest.approx(26.32 + 0.0235 * 1500, rel=0.01)
    assert "t_sw_us and t_nic_us" in numbers["refused"]


def test_what_is_wrong(executed: Executed) -> None:
    book, broken = executed("9-what-is-wrong.ipynb")
    assert figures(book) == 1
    assert broken == {"bad-parity": ["P03"], "missing-turnaround": ["T10"], "two-grants": ["A01"]}


def test_recording(executed: Executed) -> None:
    """From a plan to constants by the real sigrok-cli and two namespaces; the constants are those of the simulation."""
    book, numbers = executed("5-recording.ipynb")
    assert figures(book) == 1
    assert (numbers["origin"], numbers["source_origin"], numbers["simulated"]) == ("replayed", "simulated", True)
    assert numbers["frames_on_bus"] is False
    assert numbers["complete"] is True
    assert numbers["same_samples"] is True
    # 200 requests and as many responses of each size, each in the log of its sender and of its receiver
    assert numbers["sizes"] == [64, 512, 1024, 1500]
    assert numbers["sent"] == numbers["received"] == 1600
    assert numbers["logged"] == 3200
    assert numbers["not_exact"] == 0
    assert numbers["frames"] == 450
    assert numbers["t_nic_at_0_us"] == pytest.approx(4.347, rel=0.01)
    assert numbers["R_send"] == pytest.approx(0.00758, rel=0.01)
    assert numbers["R_recv"] == pytest.approx(0.00792, rel=0.01)
    assert numbers["t_sw_us"] is None, "no latency of the replayed bench was measured"
    # The direct run has exact lengths by its log, the replay has bounds: off by less than half a byte, 0.008 us.
    assert abs(numbers["difference_us"]) < 0.004


def test_latency_and_switch(executed: Executed) -> None:
    """The lines of figure 3.2, and the switch as their difference."""
    book, numbers = executed("6-latency-and-switch.ipynb")
    assert figures(book) == 3
    assert numbers["direct"] == pytest.approx([26.32, 0.0235], rel=1e-3)
    assert numbers["through"] == pytest.approx([32.436, 0.0350], rel=1e-3)
    for found, sigma, published in zip(numbers["switch"], numbers["sigma"], (6.119, 0.0115), strict=True):
        assert abs(found - published) < 4 * sigma
    assert abs(numbers["three"] - 6.119) < 4 * numbers["three_sigma"]
    assert numbers["three_sigma"] < numbers["sigma"][0]
    assert numbers["backplane_gbit_s"] == pytest.approx(2.29, abs=0.02)
    assert numbers["rfc1242_64_us"] == pytest.approx(5.911 + 64 * 0.0035, abs=0.02)
    assert numbers["sigma_us"] == pytest.approx(0.1 * 5**0.5, rel=0.2)


def test_streams_and_loss(executed: Executed) -> None:
    """Each frame's fate against switch.csv."""
    book, numbers = executed("7-streams-and-loss.ipynb")
    assert figures(book) == 4
    assert numbers["knee_us"] == pytest.approx(22.26, abs=0.001)
    one_way = 12 + 1024 * 0.0155 + 1050 * (0.008 + 8 / 381.67) + 5.9 + 12.112
    assert numbers["floor_us"] == pytest.approx(one_way, abs=0.1)
    assert numbers["loss_at_14_us"] == pytest.approx(1 - 14 / 22.26 - 200 / 1500, abs=0.01)
    assert numbers["lost"] == numbers["dropped"] > 300
    assert numbers["duplicated"] == numbers["copies"] > 20
    assert numbers["method"] == "blocks"
    assert numbers["interval"][0] < 0.02 < numbers["interval"][1]
    assert numbers["knee_of_losses"] is None


def test_switch_under_the_microscope(executed: Executed) -> None:
    """Cells, buffer and learning are those of the plan."""
    book, numbers = executed("8-switch-under-the-microscope.ipynb")
    assert figures(book) == 2
    assert numbers["step_bytes"] == 64
    assert abs(numbers["step_us"] - 0.035) < 4 * numbers["step_sigma_us"]
    assert numbers["direct_step"] is None
    assert (numbers["buffer_frames"], numbers["buffer_bytes"]) == (1024, 1024 * 1024)
    assert numbers["flooded"] == {"deaf": 400, "learns": 0}
    assert numbers["learned"] == {"deaf": 0, "learns": 2}


def test_unknown_card(executed: Executed) -> None:
    _, numbers = executed("10-unknown-card.ipynb")
    assert numbers["frames"] == numbers["again"] > 40
    assert numbers["receive_fcs"] in (None, False)
    for name in ("t_nic_us", "R_PCI_send_us_per_byte", "R_PCI_recv_us_per_byte"):
        assert abs(numbers[name]) < 5


def test_a_campaign(executed: Executed) -> None:
    book, numbers = executed("11-campaign.ipynb")
    assert figures(book) == 1
    assert (numbers["done"], numbers["retried"]) == (4, ["seed3"])
    assert all(numbers[name] == pytest.approx(0.00758, rel=0.003) for name in ("seed1", "seed2", "seed3"))
    # A word a clock, and what figure 3.1 has beyond that.
    assert numbers["slower"] == pytest.approx(1 / 30 / 4, rel=0.02)
