package warehouses;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * What really backs this process's memory, as the kernel says in /proc/self/smaps (proc(5)): a JVM that gets no large pages
 * says so in a warning and goes on.
 */
final class Pages {
    /** Memory of the process that is in place, KiB: anonymous memory and that of a huge page pool. */
    final long resident;
    /** The part of it in large pages, KiB. */
    final long large;

    private Pages(long resident, long large) {
        this.resident = resident;
        this.large = large;
    }

    static Pages ofThisProcess() throws IOException {
        return read(Files.readAllLines(Path.of("/proc/self/smaps")));
    }

    private static Pages read(List<String> lines) throws IOException {
        long anonymous = 0;
        long transparent = 0;
        long pool = 0;
        boolean anyLine = false;
        for (String line : lines) {
            if (line.startsWith("Anonymous:")) {
                anonymous += kib(line);
                anyLine = true;
            } else if (line.startsWith("AnonHugePages:")) {
                transparent += kib(line);
            } else if (line.startsWith("Private_Hugetlb:") || line.startsWith("Shared_Hugetlb:")) {
                pool += kib(line);
            }
        }
        if (!anyLine) {
            throw new IOException("/proc/self/smaps has no line `Anonymous:`");
        }
        return new Pages(anonymous + pool, transparent + pool);
    }

    private static long kib(String line) throws IOException {
        String[] words = line.split("\\s+");
        if (words.length != 3 || !words[2].equals("kB")) {
            throw new IOException("/proc/self/smaps: cannot read `" + line + "`");
        }
        return Long.parseLong(words[1]);
    }
}
