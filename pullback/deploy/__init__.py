"""Libraries that train without Python: a trainer as C, for devices, microcontrollers and browsers."""
