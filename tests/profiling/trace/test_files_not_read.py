"""Files that are not read are told what they are and, where something helps, what to bring instead."""

import gzip
import marshal
from pathlib import Path

import pytest

from profiling.trace.importing import reader_of
from profiling.trace.limits import Unreadable
from tests.contracts.trace_files import database

DATA = Path(__file__).resolve().parents[2] / "data" / "formats"


def test_a_database_of_nvprof_is_told_what_it_is(tmp_path: Path) -> None:
    path = database(tmp_path / "a.nvvp", {"StringTable(_id_, value)": [], "CUPTI_ACTIVITY_KIND_KERNEL(start, end)": []})

    with pytest.raises(Unreadable, match="nvprof"):
        reader_of(path)


def test_a_database_of_rocprof_names_the_file_beside_it(tmp_path: Path) -> None:
    tables = {'OPS("BeginNs" INTEGER, "EndNs" INTEGER)': [], 'KERN("Index" INTEGER, "KernelName" TEXT)': []}
    with pytest.raises(Unreadable, match=r"results\.json"):
        reader_of(database(tmp_path / "results.db", tables))


def test_a_database_of_sums_of_ascend_names_the_files_beside_it(tmp_path: Path) -> None:
    tables: dict[str, list[tuple[object, ...]]] = {"CommAnalyzerTime(hccl_op_name)": [], "StepTraceTime(step)": []}
    with pytest.raises(Unreadable, match=r"trace_view\.json"):
        reader_of(database(tmp_path / "analysis.db", tables))


def test_a_database_is_told_by_its_tables_wherever_they_stand_in_it(tmp_path: Path) -> None:
    filler: dict[str, list[tuple[object, ...]]] = {f"a{i}({'x' * 900})": [] for i in range(100)}
    path = database(tmp_path / "dlprof.sqlite", {**filler, "read_only_ops(id, op_name)": []})
    assert b"read_only_ops" not in path.read_bytes()[: 64 << 10]
    with pytest.raises(Unreadable, match="DLProf"):
        reader_of(path)
    with pytest.raises(Unreadable, match='an SQLite database with the tables "songs"'):
        reader_of(database(tmp_path / "other.sqlite", {"songs(id, name)": []}))


def test_what_is_packed_and_empty_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b""))

    with pytest.raises(Unreadable, match="holds nothing or is damaged"):
        reader_of(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ((DATA / "torch_et_simple_add.json").read_bytes(), "an execution trace of torch, which has no times"),
        ((DATA / "linux_perf_script.txt").read_bytes(), "the text of `perf script`"),
        ((DATA / "rocprofv3_doc_hip_api_stats.csv").read_bytes(), "statistics of rocprof"),
        (
            b'{"schema": "1.1.1-chakra.0.0.4", "pid": 7, "nodes": [{"attrs": [{"name": "op_schema"}]}]}',
            "of torch, which",
        ),
        (b'[{"traceId": "a1", "id": "b2", "timestamp": 5, "duration": 7}]', "spans of Zipkin"),
        (b'{"batches": [{"resource": {}, "scopeSpans": []}]}', "Tempo"),
        (b"\x0a\x40\x0a\x20\x0a\x1e\x0a\x0cservice.name" + bytes(40), "OTLP as protocol buffers"),
        (b'"Index","KernelName","gpu-id","BeginNs","EndNs","DurationNs"\n0,"a",1,5,7,2\n', "rocprof, the predecessor"),
        (b'Agent_Id;Kernel_Name;Start_Timestamp;End_Timestamp\n4;"a";5;7\n', "separated by semicolons"),
        (b'"ID";"Process ID";"Process Name"\n', "separated by semicolons"),
        (b"Processing [a.sqlite] with [cuda_gpu_kern_sum.py]\n\nTime (%),Total Time (ns),Instances\n", "`nsys stats`"),
        (b'{"id":38,"table":"StringIds","value":"compute_log_prob"}\n{"color":255}\n', "as lines of JSON"),
        (b"name, utilization.gpu [%], memory.used [MiB]\n", "readings of nvidia-smi without"),
        (b"main;step;matmul 0.125\nmain;step 2.5\n", "decimal counts"),
        (b'{"nodes": [{"id": 1, "callFrame": {"functionName": "(root)"}}], "samples": []}', "Chrome's or Node's tools"),
        (b'{"alloc_samples": 0, "args": [], "elapsed_time_sec": 1.5, "files": {}}', "Scalene"),
        (b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\x12\x10" + bytes(16), "a profile of pprof"),
        (
            b"\x48\xd6\xdd\x05\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\x50\xf3\x07" + bytes(16),
            "a profile of pprof",
        ),
        (b'{"label": "a", "duration": 49.4, "markers": [], "frames": []}', "Firefox"),
        (b'{"meta": {"interval": 1, "stackwalk": 1, "version": 27}, "libs": [], "threads": []}', "Firefox"),
        (b'{"version": 1, "recording": {"displayName": "a"}}', "Safari"),
        (b'{"version": 1.2, "mode": "cpu", "interval": 1000, "samples": 9, "missed_samples": 0}', "stackprof"),
        (b'{\n"program": "a", "arguments": ["a"], "rts_arguments": ["-pj"]}', "Haskell"),
        (b"Weight\tSelf Weight\t\tSymbol Names\n", "Instruments"),
        (b"# callgrind format\nevents: Instructions\n", "callgrind"),
        (b"@ inst_retired.any [35705 samples]\n\n20.86%  [7447]     a @ /boot/kernel/zfs.ko\n", "pmcstat"),
        (
            b"Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us)\n",
            "Ascend's profiler",
        ),
        (b"Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped\n", "a table of Ascend's profiler"),
        (
            b'{"(0, 1)": {"step": {"hcom_broadcast__501_0": {"0": {"Communication Time Info": {}}}}}}',
            "over collectives",
        ),
        (marshal.dumps({("a.py", 7, "step"): (1, 1, 0.5, 0.5, {})}), "cProfile"),
        (gzip.compress(gzip.compress(b"{}")), "packed twice by gzip"),
        (b"PERFILE2" + bytes(100), "a recording of Linux's perf"),
        (b'{"data": [{"traceID": "a", "spans": []}]}', "the page of Jaeger"),
        (b'{"resourceMetrics": []}', "metrics of OpenTelemetry"),
        (b"PK\x03\x04" + bytes(30) + b"archive/data.pkl", "a checkpoint of torch"),
        (b"PK\x03\x04" + bytes(60), "an archive"),
        (b"\x28\xb5\x2f\xfd" + bytes(60), "packed, and not by gzip"),
        (b"<!DOCTYPE html><html>", "a page"),
        (b"\n<!DOCTYPE html>\n<html>\n<head>\n  <title>memray - flamegraph report</title>", "a page of memray"),
        (b"<!DOCTYPE html><html><head><title>Dask Performance Report</title>", "a report of Dask"),
        (b'<?xml version="1.0" standalone="no"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG">\n<svg>', "a picture"),
        (b"\x04\x22\x4d\x18\x40\x40\xc0\x22\x9d\x00\x00\xf8\x06memray\x00\x0c", "a recording of memray"),
        (b"MOJ\x01\x01map\x00400000-423000 /usr/bin/python3.8\x00", "austin as MOJO"),
        (b"\x12\x24\x09" + bytes(33) + b"\x22\x6e\x0a=type.googleapis.com/tensorflow.profiler.Step", "a page of XLA's"),
        (b"\x22\x96\x1b\x0aX\x08\x01\x12\x06Device\x1a\x04IDLE", "a page of XLA's profiler"),
        (b'[\n  {\n    "cols":[{"id": "stepnum"}]}]', "a page of XLA's profiler"),
        (b'{\n "byCategory": {"name": "byCategory", "children": []}}', "a page of XLA's profiler"),
        (b'[\n {"children": [{"children": [], "frame": {"name": "gemm"}, "metrics": {}}]}]', "Triton's Proton"),
        (b'{\n "data": [[62, 0]],\n "columns": ["time"], "column_metadata": [{}], "nodes": []}', "Caliper"),
        (b'{"start_time": 1.5, "duration": 2, "sample_count": 9, "program": "a", "root_frame": {}}', "of pyinstrument"),
        (b"\x03\x42OTF2\x00\x03\x02\x02", "Score-P"),
        (b"HPCTOOLKITtrce\x04\x00", "HPCToolkit"),
        (b"PROJECTIONS-RECORD 985\n6 77991\n", "a log of Charm++"),
        (b"[]", "JSON that holds nothing"),
        (b"\xef\xbb\xbf {\n}\n", "JSON that holds nothing"),
        (b'[{"args": {"name": "AIU 0"}, "name": "process_name", "ph": "M", "pid": 0}]', "but holds no event"),
        (b"==12== NVPROF is profiling process 12, command: ./a\n==12== Profiling result:\n", "what nvprof"),
        (
            b"Time(%),Time,Calls,Avg,Min,Max,Name\n47.79%,542.36ms,45,12.052ms,12.007ms,12.110ms,[CUDA memcpy HtoD]\n",
            "nvprof",
        ),
        (b"# ========\n# hostname : a\n\njava 19983 cycles:\nffffffff8103d0ca native_write ([k])\n", "`perf script`"),
        (b"node-v011 31912 cpu-clock: \n            13a80b608e0a a:[&] (/tmp/perf-7539.map)\n", "`perf script`"),
        (b"CPU     ID                    FUNCTION:NAME\n  0  64091         :tick-60s \n\n", "as DTrace prints them"),
        (
            b'Kernel_Name,Count,Sum(ns),Mean(ns),Median(ns),Pct\n"gemm",150,4358035.07,1.5,1.5,83.7\n',
            "by kernel, without",
        ),
        (b"Kernel Report\nKernel Name,Op ID,Op Name,Direction,Uses TC,Total GPU Time (ns)\n", "a report of DLProf"),
        (b"Op Type Summary Report\nOp Type,# Ops,# Calls,Total CPU Time (ns)\n", "a report of DLProf"),
        (
            b"\n" + b"-" * 26 + b" DeepSpeed Flops Profiler " + b"-" * 26 + b"\nProfile Summary at step 2:\n",
            "flops profiler",
        ),
        (
            b"-------  ------------  ------------  ------------\n   Name    Self CPU %      Self CPU   CPU total %\n",
            "a table of torch's profiler",
        ),
        (b'"LABEL-FAPP-info","Name","Value"\n"FAPP-info","CSV version","2"\n', "Fujitsu's profiler"),
        (b'{\n    "timemory": {\n        "WALL_CLOCK": {}}}', "a profile of timemory"),
        (b"{(\x03\x00\x00\x00s8\x00\x00\x00/usr/a.py", "cProfile"),
        (b"\x17\x08Dtracing6\x00\x00", "ftrace, trace-cmd"),
        (b"tr\xfdP\x01\x02", "Tracy"),
        (b"FLR\x00\x00\x02", "Flight Recorder"),
        (b'{\n\t"Name": "Fibonacci",\n\t"SpanContext": {\n\t\t"TraceID": "8a"}}\n', "OpenTelemetry prints them"),
        (b'[{"id":1,"timestamps":[{"name":"HTTP_RECV_START","ns":5294383183578}]}]', "Triton Inference Server"),
        (b'"CodeObj","Vaddr","Instruction","Hitcount","Latency","Stall","Idle","Source"\n', "thread trace"),
        (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "what a server says of an error"),
        (b"\x89PNG\r\n\x1a\n" + bytes(60), "a picture"),
        (b"go 1.22 trace\x00\x00\x00", "execution trace of Go"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:b87f94d8\nsize 593444864\n", "a pointer of Git LFS"),
        (b"step_num,start_point,end_point,total,fp_point,bp_point\n1,2,3,1,2,3\n", "MindSpore's profiler"),
        (b"HloModule jit_step, is_scheduled=true\n", "a program of XLA"),
        (b"# gpu    pwr  gtemp     sm\n# Idx      W      C      %\n    0     70     35      0\n", "nvidia-smi dmon"),
        (b"#Time        gpu    pwr     sm\n#HH:MM:SS    Idx      W      %\n", "nvidia-smi dmon"),
        (b"| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15 |\n", "nvidia-smi says of one moment"),
        (b"#Entity   GRACT        SMACT        DRAMA\nID\nGPU 0     0.987        0.912        0.412\n", "`dcgmi dmon`"),
        (b"timestamp,gpu,power_usage,gfx_clk\n1743502272,0,412,1980\n", "readings of devices"),
        (
            b"# HELP vllm:num_requests_running Number\n# TYPE vllm:num_requests_running gauge\n",
            "metrics for Prometheus",
        ),
        (
            b"\n ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Time (%)  Total Time (ns)\n",
            "a table of `nsys stats`",
        ),
        (b'[{"Time (%)": 45.1, "Total Time (ns)": 12}]', "a table of `nsys stats`"),
        (b"==PROF== Connected to process 12345 (/usr/bin/python3)\n", "what Nsight Compute prints"),
        (b"# Total Lost Samples: 0\n#\n# Overhead  Command  Symbol\n", "`perf report`"),
        (b"\n Performance counter stats for 'python train.py':\n", "`perf stat`"),
        (b"Function\tCPU Time\tModule\nmultiply\t12.1\tmatrix\n", "a table of VTune"),
        (b"Flat profile:\n\nEach sample counts as 0.01 seconds.\n", "gprof"),
        (b"desc: (none)\ncmd: ./a.out\ntime_unit: i\n", "massif"),
        (b'12345 10:11:12.123456 openat(AT_FDCWD, "/etc/ld.so.cache", O_RDONLY) = 3\n', "strace"),
        (b'{"snapshot":{"meta":{"node_fields":["type"]}}}', "snapshot of a heap"),
        (b"         1234 function calls (1200 primitive calls) in 0.5 seconds\n", "cProfile prints"),
        (b"Timer unit: 1e-06 s\n\nTotal time: 1.2 s\n", "line_profiler"),
        (b"CMDLINE python train.py\nMEM 1.5 1600000000.1\n", "mprof"),
        (b"Process 12345: python train.py\nPython v3.11.2 (/usr/bin/python3.11)\n", "stacks of one moment"),
        (b"import time: self [us] | cumulative | imported package\n", "of its imports"),
        (b"\x80\x05\x95\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x0btracemalloc", "tracemalloc"),
        (b"|=====|\n|       PyTorch CUDA memory summary, device ID 0       |\n", "summary of GPU memory"),
        (b"Module                FLOP    % Total\n", "FlopCounterMode"),
        (b"V0401 10:11:12.1 12 torch/_logging/structured.py:22] {}\n", "torch's compiler"),
        (b"-------------------Device Summary-------------------\n", "Paddle's profiler"),
        (b'[\n  { "count" : 512 }\n, { "name" : "conv1", "timeMs" : 12.3 }\n]', "`trtexec`"),
        (b"layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms);\n", "OpenVINO"),
        (b'{"date": "20250401", "request_throughput": 8.1, "ttfts": [0.1]}', "results of a benchmark"),
        (b"# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728\n", "nccl-tests"),
        (b'{"instruction": [{"timestamp": 1}], "dma": []}', "AWS Neuron"),
        (b'<?xml version="1.0"?>\n<trace-query-result>\n', "a table of Instruments"),
        (b"<!DOCTYPE html>\n<html><head><title>Android System Trace</title>", "systrace"),
        (b'<!DOCTYPE html>\n<script>import "https://cdn/torch/utils/viz/MemoryViz.js"', "a page of torch's memory"),
        (b"packet {\n  timestamp: 123\n}\n", "a trace of Perfetto as text"),
        (b'[[{"trace_id":1,"span_id":2}]]', "spans in a form of their service's own"),
        (b"allocator,num_allocations,size,tid\n", "a table of memray"),
        (b'\x40\0\0\0\0\0\0\0{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', "safetensors"),
        (b'{"cells": [{"cell_type": "code"}], "nbformat": 4}', "a notebook"),
        (b"PK\x03\x04" + bytes(26) + b"weight.npy", "arrays of NumPy"),
        (b"Stream Id,Task Id,Hit Rate,Victim Rate,Op Name\n2,11054,N/A,0.06,trans_TransData_1\n", "Ascend's profiler"),
        (b'Type,Time(%),Time,Calls,Avg\n"GPU activities",95.54%,9.7ms,8,1.2ms\n', "nvprof"),
        (b"All Iterations\nOp Name,Op Type,No. Calls,TC Eligible,Using TC,Total CPU Time (ns)\n", "a report of DLProf"),
        (b"[[1796139297650295, 1796139297650659], [[0], [1]]]", "memory timeline of torch as sums"),
        (b'{"model": "x", "rows": [1]}', 'it looks like JSON with "model", "rows"'),
        (b"SQLite format 3\0" + bytes(200), "damaged database|an SQLite database"),
        (b"hello\n", "it looks like text"),
        (bytes(range(256)), "it looks like binary data"),
    ],
)
def test_a_file_that_is_not_read_is_told_what_it_is(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a file"
    path.write_bytes(content)

    with pytest.raises(Unreadable, match=said):
        reader_of(path)
