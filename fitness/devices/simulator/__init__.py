"""The simulator: PTX on NumPy, every access checked, times from a cost model."""
