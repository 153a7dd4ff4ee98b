"""What is known of accelerators: complete, in the right units, and found by the names they go by."""

from importlib.resources import files

import pytest

from jobs.catalog.accelerator import Accelerator, accelerators, find_accelerator

_ALL = list(accelerators().values())
_IDS = [each.id for each in _ALL]

# Memory on the label in GB, bandwidth in TB/s, dense bf16 (fp16 where there is none) and fp8 TFLOP/s.
_ROWS = [
    ("v100-16", 16, 0.90, 125, None),
    ("v100-32", 32, 0.90, 125, None),
    ("t4", 16, 0.32, 65, None),
    ("a10", 24, 0.60, 125, None),
    ("a30", 24, 0.93, 165, None),
    ("a40", 48, 0.70, 150, None),
    ("a100-40-sxm", 40, 1.56, 312, None),
    ("a100-40-pcie", 40, 1.56, 312, None),
    ("a100-80-sxm", 80, 2.04, 312, None),
    ("a100-80-pcie", 80, 1.94, 312, None),
    ("a800-80-sxm", 80, 2.04, 312, None),
    ("h100-sxm", 80, 3.35, 989, 1979),
    ("h100-96", 96, 2.4, 989, 1979),
    ("h100-pcie", 80, 2.0, 756, 1513),
    ("h100-nvl", 94, 3.9, 835, 1671),
    ("h800-sxm", 80, 3.35, 989, 1979),
    ("h20", 96, 4.0, 148, 296),
    ("h200-sxm", 141, 4.8, 989, 1979),
    ("h200-nvl", 141, 4.8, 835, 1671),
    ("gh200-96", 96, 4.0, 989, 1979),
    ("gh200-144", 144, 4.8, 989, 1979),
    ("b200", 180, 8.0, 2250, 4500),
    ("b300", 288, 8.0, 2250, 4500),
    ("gb200", 186, 8.0, 2500, 5000),
    ("gb300", 288, 8.0, 2500, 5000),
    ("l4", 24, 0.30, 121, 242),
    ("l20", 48, 0.86, 120, 239),
    ("l40", 48, 0.86, 181, 362),
    ("l40s", 48, 0.86, 362, 733),
    ("rtx-a6000", 48, 0.77, 155, None),
    ("rtx-6000-ada", 48, 0.96, 364, 728),
    ("rtx-3090", 24, 0.94, 71, None),
    ("rtx-4090", 24, 1.01, 165, 330),
    ("rtx-5090", 32, 1.79, 210, 419),
    ("rtx-pro-6000", 96, 1.79, 504, 1007),
    ("mi250x", 64, 1.64, 191.5, None),  # one of the two dies of a package
    ("mi300x", 192, 5.3, 1307, 2615),
    ("mi325x", 256, 6.0, 1307, 2615),
    ("mi350x", 288, 8.0, 2300, 4600),
    ("mi355x", 288, 8.0, 2500, 5000),
    ("ascend-910b", 64, 1.6, 354, None),
    ("ascend-910c", 64, 1.6, 390, None),  # one of the two dies of a package
    ("gaudi2", 96, 2.46, 432, 865),
    ("gaudi3", 128, 3.7, 1835, 1835),
]


def test_every_file_is_read_and_there_are_no_others() -> None:
    folder = files("jobs.catalog") / "accelerators"
    stored = sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
    assert stored == sorted(accelerators()) == sorted(row[0] for row in _ROWS)
    assert len(stored) >= 39


@pytest.mark.parametrize(("accelerator_id", "memory", "bandwidth", "half", "fp8"), _ROWS, ids=[row[0] for row in _ROWS])
def test_sizes_and_rates_are_those_of_the_table(
    accelerator_id: str, memory: int, bandwidth: float, half: float, fp8: float | None
) -> None:
    known = accelerators()[accelerator_id]
    assert known.memory_bytes == memory * 10**9
    assert known.bandwidth == pytest.approx(bandwidth * 1e12)
    assert known.peak["fp16"] == pytest.approx(half * 1e12)
    assert known.peak.get("fp8", 0) == pytest.approx((fp8 or 0) * 1e12)
    assert known.has_fp8 == (fp8 is not None)


@pytest.mark.parametrize("known", _ALL, ids=_IDS)
def test_units_are_sane(known: Accelerator) -> None:
    # A label's GB is between 10^9 and 2^30 bytes, and a few hundred MiB to an eighth are never a framework's to give.
    assert 0.92 <= known.usable_bytes / known.memory_bytes <= 2**30 / 10**9
    assert 0.3e12 <= known.bandwidth <= 10e12
    assert all(50e12 <= rate <= 6000e12 for rate in known.peak.values())
    assert 15e9 <= known.link_bandwidth <= 900e9
    assert 15e9 <= known.pcie_bandwidth <= 450e9
    assert 50 <= known.watts <= 1500
    assert known.source
    assert known.evidence
    assert known.label == known.label.strip()


@pytest.mark.parametrize("known", _ALL, ids=_IDS)
def test_no_measured_rate_is_above_the_peak(known: Accelerator) -> None:
    for kind, best in known.best.items():
        assert 0.4 <= best / known.peak[kind] < 1
    if known.best:
        assert "table" in known.evidence


@pytest.mark.parametrize(
    ("accelerator_id", "gib"),
    [
        ("h100-sxm", 79.19),
        ("a100-80-sxm", 79.2),
        ("a100-40-sxm", 39.4),
        ("h200-sxm", 139.8),
        ("b200", 178.35),
        ("mi300x", 191.98),
        ("rtx-4090", 23.5),
        ("rtx-5090", 31.4),
        ("v100-16", 15.77),
    ],
)
def test_usable_memory_is_what_a_log_showed(accelerator_id: str, gib: float) -> None:
    known = accelerators()[accelerator_id]
    assert known.usable_bytes == round(gib * 2**30)
    assert known.is_usable_logged
    assert "log" in known.evidence


def test_usable_memory_that_nobody_logged_says_what_was_assumed() -> None:
    for known in _ALL:
        if not known.is_usable_logged:
            assert "usable memory: " in known.source, known.id


def test_bf16_is_absent_before_ampere_and_fp8_before_ada() -> None:
    assert {known.id for known in _ALL if not known.has_bf16} == {"v100-16", "v100-32", "t4"}
    without = {known.id for known in _ALL if not known.has_fp8}
    ampere = {"a10", "a30", "a40", "a100-40-sxm", "a100-40-pcie", "a100-80-sxm", "a100-80-pcie", "a800-80-sxm"}
    others = {"rtx-a6000", "rtx-3090", "mi250x", "ascend-910b", "ascend-910c"}
    assert without == {"v100-16", "v100-32", "t4"} | ampere | others


def test_the_third_flash_attention_runs_on_hopper_alone() -> None:
    hopper = {known.id for known in _ALL if known.id.startswith(("h100", "h200", "h800", "h20", "gh200"))}
    assert {known.id for known in _ALL if "flash3" in known.attention} == hopper
    assert {known.id for known in _ALL if not known.attention} == {"v100-16", "v100-32", "t4"}


def test_a_rack_joins_72_and_consumer_cards_do_not_reach_each_other() -> None:
    assert {known.id for known in _ALL if known.domain == 72} == {"gb200", "gb300"}
    for accelerator_id in ("a100-80-sxm", "h100-sxm", "h200-sxm", "b200", "mi300x"):
        assert accelerators()[accelerator_id].domain == 8
    assert {known.id for known in _ALL if not known.has_peer_to_peer} == {"rtx-3090", "rtx-4090", "rtx-5090"}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("A100", "a100-80-sxm"),
        ("a100 80gb", "a100-80-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-40-sxm"),
        ("NVIDIA A100 80GB PCIe", "a100-80-pcie"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("nvidia h100 pcie", "h100-pcie"),
        ("H100", "h100-sxm"),
        ("h200", "h200-sxm"),
        ("H20", "h20"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-32GB", "v100-32"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("AMD-Instinct-MI300X-OAM", "mi300x"),
        ("Intel-GAUDI", "gaudi2"),
        ("Ascend910B", "ascend-910b"),
        ("B200", "b200"),
        ("gb200", "gb200"),
    ],
)
def test_an_accelerator_is_found_by_the_names_it_goes_by(name: str, found: str) -> None:
    assert find_accelerator(name).id == found


@pytest.mark.parametrize("known", _ALL, ids=_IDS)
def test_id_label_and_own_name_lead_back(known: Accelerator) -> None:
    assert all(find_accelerator(name) is known for name in (known.id, known.label, known.names[0]))


def test_memory_decides_where_several_share_a_name() -> None:
    assert find_accelerator("A100", usable_bytes=39 * 2**30).id == "a100-40-sxm"
    assert find_accelerator("V100", usable_bytes=31 * 2**30).id == "v100-32"
    assert find_accelerator("H100", usable_bytes=95 * 2**30).id == "h100-96"
    assert find_accelerator("GH200", usable_bytes=140 * 2**30).id == "gh200-144"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("H1000X", r"The nearest is h100-sxm \(H100 SXM 80 GB\)\."),
        ("", "The known ones are a10, "),
        ("abacus", "The known ones are a10, "),
    ],
)
def test_a_name_that_nothing_goes_by_is_refused_with_the_nearest_or_with_all(name: str, says: str) -> None:
    with pytest.raises(LookupError, match=rf"is not a known accelerator\. {says}"):
        find_accelerator(name)
