from sluice.nn.modules.activation import *  # noqa: F401,F403
from sluice.nn.modules.activation import Dropout
from sluice.nn.modules.container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from sluice.nn.modules.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from sluice.nn.modules.linear import Flatten, Identity, Linear, Unflatten
from sluice.nn.modules.loss import (BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, KLDivLoss, L1Loss, MSELoss, NLLLoss,
                                    SmoothL1Loss)
from sluice.nn.modules.module import Module
from sluice.nn.modules.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm
from sluice.nn.modules.pooling import (AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AvgPool1d, AvgPool2d,
                                       AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d)
from sluice.nn.modules.sparse import Embedding
