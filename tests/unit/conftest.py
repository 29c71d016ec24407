import sys
from pathlib import Path

# The helpers beside the tests (treetext) are imported by their own name.
sys.path.insert(0, str(Path(__file__).parent))
