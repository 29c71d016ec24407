from lsmkv_tool.cli import main

main()
