"""Names that people can read, of names as compilers and profilers write them."""

import pytest

from profiling.trace.category import Category
from profiling.trace.naming import readable

NATIVE = "at::native::"
LIST = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
COPY = f"{NATIVE}(anonymous namespace)::direct_copy_kernel_cuda(at::TensorIteratorBase&)"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            f"void {NATIVE}vectorized_elementwise_kernel<4, {NATIVE}CUDAFunctor_add<c10::BFloat16>, "
            "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<c10::BFloat16>)",
            "elementwise add (bf16)",
        ),
        (
            f"void {NATIVE}elementwise_kernel<128, 2, {NATIVE}gpu_kernel_impl<{NATIVE}AUnaryFunctor<float, "
            f"float, float, {NATIVE}binary_internal::MulFunctor<float> > >(at::Iter&)::{{lambda(int)#1}}>(int)",
            "elementwise mul (f32)",
        ),
        (
            f"void {NATIVE}elementwise_kernel<128, 2, {NATIVE}gpu_kernel_impl<{COPY}::{{lambda()#2}}::operator()() "
            "const::{lambda(float)#1}>(at::TensorIteratorBase&)",
            "elementwise direct copy (f32)",
        ),
        (
            f"void {NATIVE}reduce_kernel<512, 1, {NATIVE}ReduceOp<c10::Half, {NATIVE}MeanOps<c10::Half>, int>>(i)",
            "reduce mean (f16)",
        ),
        (
            f"{LIST}TensorListMetadata<2>, {NATIVE}(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>, "
            "std::plus<float>, float>(int)",
            "multi tensor apply binary op list alpha plus (f32)",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x4_tn_align8>(Params)",
            "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x4_tn_align8",
        ),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ncclKernel_AllReduce_RING_LL_Sum_float"),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, 1>(float*)", "softmax_warp_forward (f32)"),
        ("ampere_bf16_s16816gemm_bf16_128x128_tn", "ampere_bf16_s16816gemm_bf16_128x128_tn"),
        ("triton_poi_fused_add_mul_0", "triton_poi_fused_add_mul_0"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_kernel_is_called_by_what_it_does_and_in_which_type(name: str, short: str) -> None:
    assert readable(name, Category.KERNEL) == short


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("torch/nn/modules/linear.py(114): forward", "forward (linear.py:114)"),
        ("<built-in method linear of type object at 0x7f7e08abd810>", "linear"),
        ("<built-in method add_ of Tensor object at 0x7f7e08abd810>", "Tensor.add_"),
        ("nn.Module: Linear_0", "nn.Module: Linear_0"),
    ],
)
def test_a_frame_is_called_by_its_function(name: str, short: str) -> None:
    assert readable(name, Category.PYTHON) == short


def test_names_that_people_gave_stay() -> None:
    assert readable("aten::add_<4>(x)", Category.OPERATOR) == "aten::add_<4>(x)"
