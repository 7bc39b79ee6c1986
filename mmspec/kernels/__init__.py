"""Kernel paths: faster ways to run the very same layers."""

from mmspec.kernels.content import digest as digest
from mmspec.kernels.packed import PackedLinears as PackedLinears
from mmspec.kernels.packed import packing_pays as packing_pays
from mmspec.kernels.packed import worth_packing as worth_packing
from mmspec.kernels.plain import first_oddity as first_oddity
from mmspec.kernels.plain import oddity as oddity
from mmspec.kernels.worker_pool import WorkerPool as WorkerPool
