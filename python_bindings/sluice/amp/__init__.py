"""Mixed precision: torch.amp. Regions are entered with `autocast`; what functions do in them, `lists` say."""

from sluice.amp import lists as lists
from sluice.amp.autocast_mode import autocast as autocast, is_autocast_available as is_autocast_available

autocast_decorator = autocast
