"""``relay.param_dict``: parameters as bytes."""

from pullback.runtime.param_dict import load_param_dict, save_param_dict

__all__ = ["load_param_dict", "save_param_dict"]
