"""Helpers around training: torch.utils."""

from sluice.utils import capture as capture, checkpoint as checkpoint, data as data, safetensors as safetensors
from sluice.utils.trace import merge_traces as merge_traces
