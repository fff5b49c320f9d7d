# Completion of postern for fish. The program itself finds the candidates.

function __postern_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -e words[1]
    set -l directive 0
    for line in (postern __complete -- $words "$current" 2>/dev/null)
        if string match -q ':*' -- $line
            set directive (string sub -s 2 -- $line)
        else
            printf '%s\n' $line
        end
    end
    # Without the bit 4, the names of files are candidates.
    if test (math "floor($directive / 4) % 2") -eq 0
        set -l flag (string match -r -- '^--[^=]*=' "$current")
        for path in (__fish_complete_path (string replace -r -- '^--[^=]*=' '' "$current"))
            printf '%s%s\n' "$flag" $path
        end
    end
end

complete -c postern -f -a '(__postern_complete)'
