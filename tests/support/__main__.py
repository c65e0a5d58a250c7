from cordee.faces.cli import main
from support.commands import support

main(None, support)
