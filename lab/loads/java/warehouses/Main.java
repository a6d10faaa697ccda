package warehouses;

import com.sun.management.HotSpotDiagnosticMXBean;
import java.io.IOException;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;

/**
 * Many warehouses, a thread for each: how many transactions a second, for each number of warehouses.
 *
 * Arguments, all needed, in any order, each followed by its value: --seed, --items, --threads (warehouses while it warms up),
 * --warm-up-ms, --points (numbers of warehouses, in their order, 2,3,4,1), --each-ms (of a point). The warm-up ends that long
 * after the start of this process, whatever starting the JVM and making the data took, so that programs that begin together
 * measure together; whether it was long enough is the reader's to say, from the counts in it.
 *
 * Prints one line of JSON. Ends with 1 and a sentence if it cannot work, or if its books do not balance.
 */
final class Main {
    /** Parts of the warm-up that are counted apart. */
    private static final int INTERVALS = 20;
    /** How often a point is counted while it is measured: each tenth of a second, and this often at most. */
    private static final long MOMENT = 100_000_000;
    private static final int MOMENTS = 200;
    /** Transactions of each warehouse before time counts, for the digest. */
    private static final int KNOWN = 200;

    /** One worker's count, apart from the others' in memory: they would share a cache line. */
    private static final class Count {
        @SuppressWarnings("unused")
        private long before0, before1, before2, before3, before4, before5, before6;
        volatile long value;
        @SuppressWarnings("unused")
        private long after0, after1, after2, after3, after4, after5, after6;
    }

    /** What ran: when it began, ms since 1970, and then pairs of ns since that moment and transactions until then. */
    private record Ran(long beganAt, List<long[]> moments) {
        long[] last() {
            return moments.get(moments.size() - 1);
        }

        /** Pairs of ms and transactions, as JSON: who counted something between two moments divides it by what was done then. */
        String json() {
            List<String> pairs = new ArrayList<>();
            for (long[] moment : moments) {
                pairs.add(String.format(Locale.ROOT, "[%.3f,%d]", moment[0] / 1e6, moment[1]));
            }
            return "[" + String.join(",", pairs) + "]";
        }
    }

    private static volatile boolean stopped;

    public static void main(String[] arguments) throws Exception {
        long start = System.nanoTime() - age();
        Arguments given = new Arguments(arguments);
        long seed = given.number("--seed");
        int items = (int) given.number("--items");
        int threads = (int) given.number("--threads");
        long warmUp = given.number("--warm-up-ms") * 1_000_000;
        long each = given.number("--each-ms") * 1_000_000;
        int[] points = given.numbers("--points");
        int most = Math.max(threads, Arrays.stream(points).max().orElse(0));
        if (items < 1 || threads < 1 || most > 4096 || Arrays.stream(points).anyMatch(point -> point < 1)) {
            fail("items, threads and points begin at 1, and 4096 warehouses are the most");
        }

        Warehouse[] warehouses = made(most, items, seed);
        long digest = 0;
        for (Warehouse warehouse : warehouses) {
            digest = digest * 31 + warehouse.digest();
        }
        Pages pages = Pages.ofThisProcess();
        long ready = System.nanoTime() - start;
        if (ready > warmUp / 2) {
            // The warm-up grows with the samples.
            fail(String.format(Locale.ROOT, "starting and making the data took %.1f s, and half of the %.1f s of warm-up is for it: "
                    + "give samples of %.0f s or more (--seconds)", ready / 1e9, warmUp / 1e9, Math.ceil(2 * ready / 1e9)));
        }

        List<Long> counts = new ArrayList<>();
        long length = (warmUp - ready) / INTERVALS;
        long before = 0;
        for (long[] moment : run(warehouses, threads, length, INTERVALS).moments()) {
            counts.add(moment[1] - before);
            before = moment[1];
        }
        long beganAt = System.currentTimeMillis();
        long collectionsBefore = collections();
        List<String> measured = new ArrayList<>();
        long endedAt = beganAt;
        int moments = Math.clamp(each / MOMENT, 1, MOMENTS);
        for (int point : points) {
            Ran ran = run(warehouses, point, each / moments, moments);
            measured.add(String.format(Locale.ROOT,
                    "{\"warehouses\":%d,\"seconds\":%.6f,\"transactions\":%d,\"began_ms\":%d,\"moments\":%s}", point,
                    ran.last()[0] / 1e9, ran.last()[1], ran.beganAt(), ran.json()));
            if (point >= threads) {
                endedAt = System.currentTimeMillis();
            }
        }
        for (Warehouse warehouse : warehouses) {
            if (!warehouse.balances()) {
                fail("the books of a warehouse do not balance: this machine or this JVM makes mistakes");
            }
        }
        System.out.printf(Locale.ROOT,
                "{\"schema\":\"nearmetal-jvm\",\"schema_version\":1,\"began_ms\":%d,\"ended_ms\":%d,"
                        + "\"ready_seconds\":%.3f,\"warm_up\":{\"interval_seconds\":%.6f,\"transactions\":%s},\"points\":[%s],"
                        + "\"pages\":{\"resident_kib\":%d,\"large_kib\":%d},\"collections\":%d,\"digest\":\"%016x\","
                        + "\"vm\":%s,\"flags\":%s}%n",
                beganAt, endedAt, ready / 1e9, length / 1e9, counts, String.join(",", measured), pages.resident, pages.large,
                collections() - collectionsBefore, digest, quoted(System.getProperty("java.vm.name") + " "
                        + System.getProperty("java.vm.version")), flags());
    }

    /** How long ago this process was started, ns: in /proc/self/stat (proc(5), field 22) and /proc/uptime, both from the boot on. */
    private static long age() throws IOException {
        String stat = Files.readString(Path.of("/proc/self/stat"));
        // Behind the name, which may have spaces and parentheses; the third field is the first there.
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        double uptime = Double.parseDouble(Files.readString(Path.of("/proc/uptime")).split(" ")[0]);
        // A tick of these files is a hundredth of a second on all machines that Debian has (sysconf(3), _SC_CLK_TCK).
        return (long) ((uptime - Long.parseLong(fields[19]) / 100.0) * 1e9);
    }

    /** The warehouses, each made by a thread of its own, so that memory is near to whom touches it first. */
    private static Warehouse[] made(int most, int items, long seed) throws InterruptedException {
        Catalogue catalogue = new Catalogue(items, new Generator(seed));
        Warehouse[] warehouses = new Warehouse[most];
        Throwable[] problem = new Throwable[1];
        Thread[] makers = new Thread[most];
        for (int number = 0; number < most; number++) {
            int own = number;
            makers[number] = new Thread(() -> {
                Warehouse warehouse = new Warehouse(catalogue, seed + 1 + own);
                for (int count = 0; count < KNOWN; count++) {
                    warehouse.transact();
                }
                warehouses[own] = warehouse;
            });
            makers[number].setUncaughtExceptionHandler((thread, error) -> problem[0] = error);
            makers[number].start();
        }
        for (Thread maker : makers) {
            maker.join();
        }
        if (problem[0] != null) {
            fail("making the data failed: " + problem[0]);
        }
        return warehouses;
    }

    /** So many warehouses work for `intervals` times `length` ns, and are counted at the end of each. */
    private static Ran run(Warehouse[] warehouses, int many, long length, int intervals) throws InterruptedException {
        Count[] done = new Count[many];
        Throwable[] problem = new Throwable[1];
        Thread[] workers = new Thread[many];
        stopped = false;
        for (int number = 0; number < many; number++) {
            Count count = new Count();
            Warehouse warehouse = warehouses[number];
            done[number] = count;
            workers[number] = new Thread(() -> {
                long own = 0;
                while (!stopped) {
                    warehouse.transact();
                    count.value = ++own;
                }
            });
            workers[number].setUncaughtExceptionHandler((thread, error) -> problem[0] = error);
        }
        for (Thread worker : workers) {
            worker.start();
        }
        long beganAt = System.currentTimeMillis();
        long begun = System.nanoTime();
        long before = sum(done);
        List<long[]> moments = new ArrayList<>();
        for (int interval = 1; interval <= intervals; interval++) {
            for (long left; (left = begun + interval * length - System.nanoTime()) > 0;) {
                Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
            }
            long now = sum(done);
            moments.add(new long[] {System.nanoTime() - begun, now - before});
        }
        stopped = true;
        for (Thread worker : workers) {
            worker.join();
        }
        if (problem[0] != null) {
            fail("a warehouse failed: " + problem[0]);
        }
        return new Ran(beganAt, moments);
    }

    private static long sum(Count[] counts) {
        long sum = 0;
        for (Count count : counts) {
            sum += count.value;
        }
        return sum;
    }

    private static long collections() {
        long count = 0;
        for (GarbageCollectorMXBean collector : ManagementFactory.getGarbageCollectorMXBeans()) {
            count += Math.max(0, collector.getCollectionCount());
        }
        return count;
    }

    /** What the JVM made of its arguments: some of them are wishes. */
    private static String flags() {
        HotSpotDiagnosticMXBean vm = ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class);
        List<String> all = new ArrayList<>();
        for (String name : new String[] {"ActiveProcessorCount", "InitialHeapSize", "MaxHeapSize", "UseParallelGC",
            "ParallelGCThreads", "AlwaysPreTouch", "UseNUMA", "UseTransparentHugePages", "UseLargePages", "TieredStopAtLevel"}) {
            all.add(quoted(name) + ":" + quoted(vm.getVMOption(name).getValue()));
        }
        return "{" + String.join(",", all) + "}";
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    private static void fail(String why) {
        System.err.println("warehouses: " + why);
        System.exit(1);
    }

    /** `--name value` in pairs. */
    private record Arguments(String[] words) {
        String text(String name) {
            for (int at = 0; at + 1 < words.length; at += 2) {
                if (words[at].equals(name)) {
                    return words[at + 1];
                }
            }
            fail("there is no " + name);
            return "";
        }

        long number(String name) {
            String text = text(name);
            try {
                return Long.parseLong(text);
            } catch (NumberFormatException error) {
                fail(name + " is no number: " + text);
                return 0;
            }
        }

        int[] numbers(String name) {
            try {
                return Arrays.stream(text(name).split(",")).mapToInt(Integer::parseInt).toArray();
            } catch (NumberFormatException error) {
                fail(name + " are no numbers: " + text(name));
                return new int[0];
            }
        }
    }
}
