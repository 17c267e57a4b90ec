from sluice.nn.modules.activation import *  # noqa: F401,F403
from sluice.nn.modules.activation import Dropout as Dropout
from sluice.nn.modules.attention import MultiheadAttention as MultiheadAttention
from sluice.nn.modules.container import ModuleDict as ModuleDict, ModuleList as ModuleList, Sequential as Sequential
from sluice.nn.modules.parameter_containers import ParameterDict as ParameterDict, ParameterList as ParameterList
from sluice.nn.modules.conv import (
    Conv1d as Conv1d, Conv2d as Conv2d, Conv3d as Conv3d, ConvTranspose1d as ConvTranspose1d,
    ConvTranspose2d as ConvTranspose2d, ConvTranspose3d as ConvTranspose3d)
from sluice.nn.modules.lazy import (
    LazyBatchNorm1d as LazyBatchNorm1d, LazyBatchNorm2d as LazyBatchNorm2d, LazyBatchNorm3d as LazyBatchNorm3d,
    LazyConv1d as LazyConv1d, LazyConv2d as LazyConv2d, LazyConv3d as LazyConv3d, LazyConvTranspose1d as LazyConvTranspose1d,
    LazyConvTranspose2d as LazyConvTranspose2d, LazyConvTranspose3d as LazyConvTranspose3d, LazyLinear as LazyLinear)
from sluice.nn.modules.linear import Flatten as Flatten, Identity as Identity, Linear as Linear, Unflatten as Unflatten
from sluice.nn.modules.loss import (
    BCELoss as BCELoss, BCEWithLogitsLoss as BCEWithLogitsLoss, CrossEntropyLoss as CrossEntropyLoss, KLDivLoss as KLDivLoss,
    L1Loss as L1Loss, MSELoss as MSELoss, NLLLoss as NLLLoss, SmoothL1Loss as SmoothL1Loss)
from sluice.nn.modules.module import Module as Module
from sluice.nn.modules.norm import (
    BatchNorm1d as BatchNorm1d, BatchNorm2d as BatchNorm2d, BatchNorm3d as BatchNorm3d, GroupNorm as GroupNorm,
    LayerNorm as LayerNorm)
from sluice.nn.modules.pooling import (
    AdaptiveAvgPool1d as AdaptiveAvgPool1d, AdaptiveAvgPool2d as AdaptiveAvgPool2d, AdaptiveAvgPool3d as AdaptiveAvgPool3d,
    AvgPool1d as AvgPool1d, AvgPool2d as AvgPool2d, AvgPool3d as AvgPool3d, MaxPool1d as MaxPool1d, MaxPool2d as MaxPool2d,
    MaxPool3d as MaxPool3d)
from sluice.nn.modules.rnn import (
    GRU as GRU, LSTM as LSTM, RNN as RNN, GRUCell as GRUCell, LSTMCell as LSTMCell, RNNBase as RNNBase, RNNCell as RNNCell,
    RNNCellBase as RNNCellBase)
from sluice.nn.modules.sparse import Embedding as Embedding
from sluice.nn.modules.transformer import (
    Transformer as Transformer, TransformerDecoder as TransformerDecoder, TransformerDecoderLayer as TransformerDecoderLayer,
    TransformerEncoder as TransformerEncoder, TransformerEncoderLayer as TransformerEncoderLayer)
