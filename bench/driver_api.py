"""The CUDA driver by ctypes, for scripts that launch kernels themselves; importable with a GPU alone."""
import ctypes

cuda = ctypes.CDLL("libcuda.so.1")


def check(result, what):
    """Raises RuntimeError with the driver's words unless the result is 0."""
    if result != 0:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(result, ctypes.byref(text))
        raise RuntimeError(f"{what}: {(text.value or b'').decode()}")
