"""Kernels of each family, as traces call them, and whether they use matrix units; the rule that asks."""

import pytest

from profiling.diagnosis.finding import finding_of, rules
from profiling.diagnosis.matrix_units import answer_by_types, answer_of, families, has_matrix_units
from profiling.trace.category import Category
from tests.profiling.made_traces import Make, Trace, maker

FP32 = "ampere_sgemm_128x64_tn"
BF16 = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"


def test_each_family_knows_its_own_examples() -> None:
    wrong = [
        (family.name, example, answer_of(example))
        for family in families()
        for example in family.examples
        if answer_of(example) != family.answer
    ]
    assert wrong == []
    assert all(family.examples and family.ref for family in families())


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "none"),
        ("triton_poi_fused_addmm_gelu_view_15", "none"),
        ("triton_red_fused_convolution_native_layer_norm_3", "none"),
        ("void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>", "none"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>", "none"),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int, int>", "none"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x128_16x3_tn_align4>", "uses"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_ffma_execute_kernel__5x_cublas", "does not"),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_execute_kernel__5x_cudnn", "uses"),
        ("_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_3", "uses"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", "uses"),
        ("ampere_gcgemm_64x64_nt", "does not"),
    ],
)
def test_names_of_real_traces(name: str, answer: str) -> None:
    assert answer_of(name) == answer


def test_types_tell_of_kernels_whose_names_do_not() -> None:
    assert answer_by_types(["c10::BFloat16", "c10::BFloat16", "Scalar"]) == "uses"
    assert answer_by_types(["float", "c10::Half"]) == "not known"
    assert answer_by_types(None) == "not known"


def test_devices_before_volta_have_none() -> None:
    assert not has_matrix_units({"name": "Tesla P100-PCIE-16GB", "computeMajor": 6})
    assert has_matrix_units({"name": "Tesla V100", "computeMajor": 7})
    assert has_matrix_units({})


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    return maker(tmp_path_factory.mktemp("stores"))


def state(make: Make, *kernels: tuple[float, str], major: int = 8) -> str:
    """Return what the rule says of kernels of so many ms."""
    device = [(10.0 * i, length, name, Category.KERNEL) for i, (length, name) in enumerate(kernels)]
    evidence = make(Trace(device=device, meta={"devices": [{"id": 0, "computeMajor": major}]}))
    return finding_of("tensor_cores_unused", rules()["tensor_cores_unused"], evidence).state


def test_slow_products_fire_where_they_matter(make: Make) -> None:
    assert state(make, (6, FP32), (4, BF16)) == "fires"
    assert state(make, (6, FP32), (4, BF16), major=6) == "not_enough_data"
    few = ((1.0, FP32), (0.5, BF16), *((9.0, "elementwise"),) * 3)
    assert state(make, *few) == "clear"  # below 5 % of the kernels' time
    assert state(make, (3, FP32), (2, BF16), (8, "MatMulV2")) == "not_enough_data"
