"""Programs that try to pass tests of a function `double` without solving anything."""

CHEATS = {
    "exit": """
import os
os._exit(0)
""",
    "exit in the function": """
import os
def double(x):
    os._exit(0)
""",
    "sys.exit": """
import sys
sys.exit(0)
""",
    "sys.exit in the function": """
import sys
def double(x):
    sys.exit(0)
""",
    "equal to all": """
class R:
    def __eq__(self, o): return True
    def __ne__(self, o): return False
def double(x): return R()
""",
    "class in place of the function": """
class double:
    def __init__(self, x): pass
    def __eq__(self, o): return True
""",
    "integer equal to all": """
class R(int):
    def __eq__(self, o): return True
    __hash__ = None
def double(x): return R()
""",
    "list equal to all": """
class R(list):
    def __eq__(self, o): return True
def double(x): return R()
""",
    "text equal to all": """
class R(str):
    def __eq__(self, o): return True
    __hash__ = None
def double(x): return R()
""",
    "patched builtins": """
import builtins
for n in ('len', 'abs', 'sorted', 'set', 'list', 'isinstance', 'any', 'all'):
    setattr(builtins, n, lambda *a, **k: True)
def double(x):
    return None
""",
    "patched AssertionError": """
import builtins
builtins.AssertionError = None
def double(x):
    return None
""",
    "patched json": """
import json
json.dumps = lambda *a, **k: '{"value": 4, "changed": []}'
def double(x):
    return None
""",
    "trace": """
import sys
sys.settrace(lambda *a: None)
sys.excepthook = lambda *a: None
def double(x):
    return None
""",
    "frames": """
import sys
def double(x):
    f = sys._getframe()
    while f:
        for v in list(f.f_locals.values()):
            if hasattr(v, 'passed'):
                v.passed, v.failed = 99, 0
        f = f.f_back
    return None
""",
    "objects": """
import gc
def double(x):
    for o in gc.get_objects():
        if type(o).__name__ == 'Tally':
            o.passed, o.failed = 99, 0
    return None
""",
    "nonsense on the channel": """
import os
os.write(3, b'\\xff' * 100)
def double(x): return None
""",
    "verdict on the channel": """
import os
os.write(3, b'{"passed": 9, "failed": 0, "finished": true}')
def double(x): return None
""",
    "verdict on standard output": """
print('{"passed": 9, "failed": 0, "declared": 1, "finished": true}', flush=True)
import os
os._exit(0)
""",
    "closed channel": """
import os
os.close(3)
def double(x): return None
""",
    "never returns": """
def double(x):
    while True: pass
""",
    "endless result": """
def double(x):
    import itertools
    return itertools.count()
""",
    "result within itself": """
def double(x):
    y = []
    y.append(y)
    return y
""",
    "deep result": """
def double(x):
    y = []
    for _ in range(10**5): y = [y]
    return y
""",
    "huge result": """
def double(x): return 'x' * 10**8
""",
    "thread that goes on": """
import threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
def double(x): return None
""",
    "atexit": """
import atexit, os
atexit.register(os._exit, 0)
def double(x): return None
""",
    "stop iteration": """
def double(x): raise StopIteration
""",
    "generator exit": """
def double(x): raise GeneratorExit
""",
    "not an exception": """
class E(BaseException): pass
def double(x): raise E
""",
    "lying exception": """
class E(Exception):
    def __str__(self): raise SystemExit
def double(x): raise E
""",
    "skipped test": """
import unittest
def double(x): raise unittest.SkipTest
""",
}
