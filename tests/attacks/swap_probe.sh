# A command of bob while alice swaps folders of the workspace: tries to read and to write through them.
#
#     sh swap_probe.sh NUMBER COUNT
#
# The first one waits until alice swaps, and the last one tells her that it was the last.
until [ -e swap-begins ]; do sleep 0.02; done
for place in swapped .vscode folder/inner swapped.link .vscode.link; do
    echo swapped-in 2> /dev/null >> "$place/notes.txt" || :
    cat "$place/.ssh/id_canary" 2> /dev/null > taken && [ -s taken ] && mv taken taken-key
done
[ "$1" -lt "$2" ] || touch probes-over
