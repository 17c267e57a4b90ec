from sluice.nn.modules.activation import (
    CELU as CELU, ELU as ELU, GELU as GELU, GLU as GLU, Hardshrink as Hardshrink, Hardsigmoid as Hardsigmoid,
    Hardswish as Hardswish, Hardtanh as Hardtanh, LeakyReLU as LeakyReLU, LogSigmoid as LogSigmoid,
    LogSoftmax as LogSoftmax, Mish as Mish, PReLU as PReLU, QuickGELU as QuickGELU, RReLU as RReLU, ReLU as ReLU,
    ReLU6 as ReLU6, SELU as SELU, SiLU as SiLU, Sigmoid as Sigmoid, Softmax as Softmax, Softmax2d as Softmax2d,
    Softmin as Softmin, Softplus as Softplus, Softshrink as Softshrink, Softsign as Softsign, SquareReLU as SquareReLU,
    Tanh as Tanh, Tanhshrink as Tanhshrink, Threshold as Threshold)
from sluice.nn.modules.adaptive import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
from sluice.nn.modules.attention import MultiheadAttention as MultiheadAttention
from sluice.nn.modules.container import (
    ModuleDict as ModuleDict, ModuleList as ModuleList, ParameterDict as ParameterDict, ParameterList as ParameterList,
    Container as Container, Sequential as Sequential)
from sluice.nn.modules.conv import (
    Conv1d as Conv1d, Conv2d as Conv2d, Conv3d as Conv3d, ConvTranspose1d as ConvTranspose1d,
    ConvTranspose2d as ConvTranspose2d, ConvTranspose3d as ConvTranspose3d)
from sluice.nn.modules.distance import (
    CosineSimilarity as CosineSimilarity, PairwiseDistance as PairwiseDistance)
from sluice.nn.modules.dropout import (
    AlphaDropout as AlphaDropout, Dropout as Dropout, Dropout1d as Dropout1d, Dropout2d as Dropout2d,
    Dropout3d as Dropout3d, FeatureAlphaDropout as FeatureAlphaDropout)
from sluice.nn.modules.lazy import (
    LazyBatchNorm1d as LazyBatchNorm1d, LazyBatchNorm2d as LazyBatchNorm2d, LazyBatchNorm3d as LazyBatchNorm3d,
    LazyConv1d as LazyConv1d, LazyConv2d as LazyConv2d, LazyConv3d as LazyConv3d, LazyConvTranspose1d as LazyConvTranspose1d,
    LazyConvTranspose2d as LazyConvTranspose2d, LazyConvTranspose3d as LazyConvTranspose3d,
    LazyInstanceNorm1d as LazyInstanceNorm1d, LazyInstanceNorm2d as LazyInstanceNorm2d, LazyInstanceNorm3d as LazyInstanceNorm3d,
    LazyLinear as LazyLinear)
from sluice.nn.modules.linear import (
    Bilinear as Bilinear, Flatten as Flatten, Identity as Identity, Linear as Linear, Unflatten as Unflatten)
from sluice.nn.modules.loss import (
    BCELoss as BCELoss, BCEWithLogitsLoss as BCEWithLogitsLoss, CTCLoss as CTCLoss,
    CosineEmbeddingLoss as CosineEmbeddingLoss, CrossEntropyLoss as CrossEntropyLoss, GaussianNLLLoss as GaussianNLLLoss,
    HingeEmbeddingLoss as HingeEmbeddingLoss, HuberLoss as HuberLoss, KLDivLoss as KLDivLoss, L1Loss as L1Loss,
    MSELoss as MSELoss, NLLLoss2d as NLLLoss2d, MarginRankingLoss as MarginRankingLoss,
                                    MultiLabelMarginLoss as MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss, MultiMarginLoss as MultiMarginLoss, NLLLoss as NLLLoss,
    PoissonNLLLoss as PoissonNLLLoss, SmoothL1Loss as SmoothL1Loss, SoftMarginLoss as SoftMarginLoss,
    TripletMarginLoss as TripletMarginLoss, TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss)
from sluice.nn.modules.module import Module as Module
from sluice.nn.modules.norm import (
    BatchNorm1d as BatchNorm1d, BatchNorm2d as BatchNorm2d, BatchNorm3d as BatchNorm3d,
    CrossMapLRN2d as CrossMapLRN2d, GroupNorm as GroupNorm, InstanceNorm1d as InstanceNorm1d, InstanceNorm2d as InstanceNorm2d,
    InstanceNorm3d as InstanceNorm3d, LayerNorm as LayerNorm, LocalResponseNorm as LocalResponseNorm,
    RMSLayerNorm as RMSLayerNorm, RMSNorm as RMSNorm, SyncBatchNorm as SyncBatchNorm)
from sluice.nn.modules.padding import (
    CircularPad1d as CircularPad1d, CircularPad2d as CircularPad2d, CircularPad3d as CircularPad3d,
    ConstantPad1d as ConstantPad1d, ConstantPad2d as ConstantPad2d, ConstantPad3d as ConstantPad3d,
    ReflectionPad1d as ReflectionPad1d, ReflectionPad2d as ReflectionPad2d, ReflectionPad3d as ReflectionPad3d,
    ReplicationPad1d as ReplicationPad1d, ReplicationPad2d as ReplicationPad2d, ReplicationPad3d as ReplicationPad3d,
    ZeroPad1d as ZeroPad1d, ZeroPad2d as ZeroPad2d, ZeroPad3d as ZeroPad3d)
from sluice.nn.modules.pooling import (
    AdaptiveAvgPool1d as AdaptiveAvgPool1d, AdaptiveAvgPool2d as AdaptiveAvgPool2d, AdaptiveAvgPool3d as AdaptiveAvgPool3d,
    AdaptiveMaxPool1d as AdaptiveMaxPool1d, AdaptiveMaxPool2d as AdaptiveMaxPool2d, AdaptiveMaxPool3d as AdaptiveMaxPool3d,
    AvgPool1d as AvgPool1d, AvgPool2d as AvgPool2d, AvgPool3d as AvgPool3d, FractionalMaxPool2d as FractionalMaxPool2d,
    FractionalMaxPool3d as FractionalMaxPool3d, LPPool1d as LPPool1d, LPPool2d as LPPool2d, LPPool3d as LPPool3d,
    MaxPool1d as MaxPool1d, MaxPool2d as MaxPool2d, MaxPool3d as MaxPool3d, MaxUnpool1d as MaxUnpool1d,
    MaxUnpool2d as MaxUnpool2d, MaxUnpool3d as MaxUnpool3d)
from sluice.nn.modules.projection_loss import (
    LinearCrossEntropyLoss as LinearCrossEntropyLoss, LinearCrossEntropyOptions as LinearCrossEntropyOptions)
from sluice.nn.modules.rnn import (
    GRU as GRU, LSTM as LSTM, RNN as RNN, GRUCell as GRUCell, LSTMCell as LSTMCell, RNNBase as RNNBase, RNNCell as RNNCell,
    RNNCellBase as RNNCellBase)
from sluice.nn.modules.sparse import (
    Embedding as Embedding, EmbeddingBag as EmbeddingBag)
from sluice.nn.modules.transformer import (
    Transformer as Transformer, TransformerDecoder as TransformerDecoder, TransformerDecoderLayer as TransformerDecoderLayer,
    TransformerEncoder as TransformerEncoder, TransformerEncoderLayer as TransformerEncoderLayer)
from sluice.nn.modules.vision import (
    ChannelShuffle as ChannelShuffle, Fold as Fold, PixelShuffle as PixelShuffle, PixelUnshuffle as PixelUnshuffle,
    Unfold as Unfold, Upsample as Upsample, UpsamplingBilinear2d as UpsamplingBilinear2d,
    UpsamplingNearest2d as UpsamplingNearest2d)
