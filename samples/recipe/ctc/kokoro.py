"""Kokoro-82M at twice its usual speed: its eight-bit convolutions in bfloat16.

The eight-bit graph spends two thirds of its time in `ConvInteger`, which onnxruntime does no faster
than float32. Here each of them, with what quantises around it, becomes the `Conv` it was made from,
and OpenVINO runs the graph: 0.36 to 0.45 s of a core for a second of speech in place of 0.7 s, on a
processor with AMX.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
from kokoro_onnx import Kokoro
from onnx import helper, numpy_helper


def with_floats(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with `Conv` in the place of each `ConvInteger`; its last `Mul` gives the name."""
    graph = model.graph
    made_by = {name: node for node in graph.node for name in node.output}
    used_by = {name: node for node in graph.node for name in node.input}
    values = {value.name: value for value in graph.initializer}

    def array(name: str) -> np.ndarray:
        return numpy_helper.to_array(values[name]).astype(np.float32)

    convolutions = {}
    for node in [node for node in graph.node if node.op_type == "ConvInteger"]:
        codes, zero = node.input[1], node.input[3]
        weight = (array(codes) - array(zero)) * array(codes.replace("_quantized", "_scale"))
        graph.initializer.append(numpy_helper.from_array(weight, f"{codes}_float"))
        inputs = [made_by[node.input[0]].input[0], f"{codes}_float"]
        after = used_by[node.output[0]]
        if after.op_type == "Add":  # the bias, divided by a scale and rounded
            before = made_by[after.input[1]]
            while before.op_type != "Div":
                before = made_by[before.input[0]]
            inputs.append(before.input[0])
            after = used_by[after.output[0]]
        name = used_by[after.output[0]].output[0]  # Cast, then Mul
        options = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        convolutions[name] = helper.make_node("Conv", inputs, [name], **options)
    nodes = [convolutions.get(node.output[0], node) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


class Session:
    """What `Kokoro` asks of an onnxruntime session, by OpenVINO on one thread."""

    def __init__(self, graph: Path) -> None:
        core = openvino.Core()
        options = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": 1}
        self.model = core.compile_model(core.read_model(graph), "CPU", options)

    def run(self, _: None, inputs: dict[str, Any]) -> list[np.ndarray]:
        """The samples."""
        result = self.model({name: np.asarray(value) for name, value in inputs.items()})
        return [np.array(result[0])]


def load(folder: Path) -> Kokoro:
    """Kokoro from a folder with `model.onnx` and `voices.npz`; `float.onnx` is added to it."""
    graph = folder / "float.onnx"
    if not graph.exists():
        onnx.save(with_floats(onnx.load(folder / "model.onnx")), folder / "float.partial")
        (folder / "float.partial").rename(graph)
    kokoro = Kokoro(str(folder / "model.onnx"), str(folder / "voices.npz"))
    kokoro.sess = Session(graph)
    return kokoro
