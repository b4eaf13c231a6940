"""The code that runs in the processes of a program under test. It uses only the standard library, and no trainer.

supervise.py is the process that the sandbox starts. It confines itself (confine.py), forks one process for each
test that runs the program. For a test in Python it forks two: one holds the program (converse.py), the other the test
(tester.py). They exchange plain data (plain.py).
"""
