package shop;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.sql.SQLException;
import java.time.Duration;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * An application server: each request is some statements on a database over the network. {@code /browse} reads, {@code
 * /purchase} writes, {@code /manage} does both. It listens once it has all its connections to the database.
 *
 * <p>Arguments: port, URL of the database (jdbc:mariadb://…), threads, items in the database, seed, seconds that it waits for
 * the database.
 */
public final class Main {
    private static final int QUEUE = 1024;

    private Main() {}

    /** See the class. */
    public static void main(String[] arguments) throws IOException, SQLException, InterruptedException {
        if (arguments.length != 6) {
            System.err.println("shop: PORT URL THREADS ITEMS SEED SECONDS are needed");
            System.exit(2);
        }
        int port = Integer.parseInt(arguments[0]);
        int threads = Integer.parseInt(arguments[2]);
        int items = Integer.parseInt(arguments[3]);
        long seed = Long.parseLong(arguments[4]);
        Duration patience = Duration.ofSeconds(Long.parseLong(arguments[5]));
        Desks desks = new Desks(arguments[1], threads, items, seed, patience);
        HttpServer server = HttpServer.create(new InetSocketAddress(port), QUEUE);
        // As many as there are connections: who has a thread has a desk.
        ExecutorService workers = Executors.newFixedThreadPool(threads);
        server.setExecutor(workers);
        server.createContext("/browse", exchange -> desks.answer(exchange, Desk::browse));
        server.createContext("/purchase", exchange -> desks.answer(exchange, Desk::purchase));
        server.createContext("/manage", exchange -> desks.answer(exchange, Desk::manage));
        server.start();
    }
}
