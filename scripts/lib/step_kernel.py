"""For gdb, by scripts/step-kernel: runs to keel_stop_here(), then to the first line of the kernel that follows."""
import gdb

for setting in ("pagination off", "confirm off", "debuginfod enabled off", "print thread-events off"):
    try:
        gdb.execute("set " + setting)
    except gdb.error:
        pass  # this gdb does not know it


def function_at(address):
    block = gdb.block_for_pc(address)
    while block is not None and block.function is None:
        block = block.superblock
    return None if block is None else block.function


def run_until(place, command):
    stop = gdb.Breakpoint(place)
    stop.silent = True
    gdb.execute(command)
    if gdb.selected_thread() is None:  # the program ended, and has said why
        gdb.execute("quit 2")
    stop.delete()


def number(expression):
    return int(gdb.parse_and_eval(expression))


run_until("keel_stop_here", "run")
name, code = gdb.parse_and_eval("kernel").string(), number("code")
function = function_at(code)
# By its name, gdb stops behind the prologue, where the arguments are in their places.
run_until("*%d" % code if function is None else "-function " + function.linkage_name, "continue")
gdb.execute("skip -gfi /usr/include/c++/*/*", to_string=True)
here = [number("keel::emulation::here." + part + "." + axis) for part in ("block", "thread") for axis in "xyz"]
print("\n%s, block (%d, %d, %d), thread (%d, %d, %d)" % (name, *here))
gdb.execute("frame")
