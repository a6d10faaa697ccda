package spec.jbb;

import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Date;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A stand-in for a kit of SPECjbb2005: its names, its properties and the lines of its output that matter, so that what runs such a
 * kit can be tried without one. It is not SPEC's, and the work it does is not SPEC's.
 */
public final class JBBmain {
    private static volatile boolean measuring;
    private static volatile boolean ended;

    private JBBmain() {
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        if (arguments.length != 2 || !arguments[0].equals("-propfile")) {
            throw new IllegalArgumentException("-propfile and a file are needed");
        }
        Properties properties = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(arguments[1]))) {
            properties.load(reader);
        }
        if (properties.containsKey("input.sequence_of_number_of_warehouses")) {
            System.out.println("ERROR:  Property file error");
            System.exit(1);
        }
        int warehouses = number(properties, "ending_number_warehouses");
        if (warehouses != number(properties, "starting_number_warehouses")) {
            throw new IllegalArgumentException("this stand-in has one point");
        }
        // What a kit reads from the directory it runs in, and what it writes there.
        Files.readString(Path.of("xml/template-document.xml"));
        Path results = Files.createDirectories(Path.of(properties.getProperty("input.output_directory").trim()));
        System.out.println("This is a stand-in for SPECjbb2005, and not SPEC's");
        AtomicLong all = new AtomicLong();
        Thread[] threads = new Thread[warehouses];
        for (int at = 0; at < warehouses; at++) {
            threads[at] = new Thread(() -> all.addAndGet(work()));
            threads[at].start();
        }
        Thread.sleep(number(properties, "ramp_up_seconds") * 1000L);
        System.out.println("Timing Measurement began " + new Date());
        long began = System.nanoTime();
        measuring = true;
        Thread.sleep(number(properties, "measurement_seconds") * 1000L);
        ended = true;
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.println("Timing Measurement ended " + new Date());
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.printf("%n           throughput =     %.2f SPECjbb2005 bops%n", all.get() / seconds);
        Files.writeString(results.resolve("SPECjbb.raw"), "stand-in\n");
    }

    private static int number(Properties properties, String name) {
        return Integer.parseInt(properties.getProperty("input." + name).trim());
    }

    /** Orders of one warehouse until the end; gives how many were in the measured part. */
    private static long work() {
        Map<Integer, Long> stock = new HashMap<>();
        long counted = 0;
        for (int order = 0; !ended; order++) {
            stock.merge(order * 31 % 4096, 1L, Long::sum);
            if (measuring) {
                counted++;
            }
        }
        return counted;
    }
}
