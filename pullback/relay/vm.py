"""``relay.vm``: the virtual machine of relay."""

from pullback.relay.backend.vm import Executable, VirtualMachine, VMCompiler, VMExecutor, compile

__all__ = ["Executable", "VMCompiler", "VMExecutor", "VirtualMachine", "compile"]
