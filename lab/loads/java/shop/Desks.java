package shop;

import com.sun.net.httpserver.HttpExchange;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Duration;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;

/** Desks that are free, each with a connection to the database. */
final class Desks {
    private final BlockingQueue<Desk> free;

    /** What a desk does for a request. */
    interface Work {
        String at(Desk desk) throws SQLException;
    }

    Desks(String url, int count, int items, long seed, Duration patience) throws SQLException, InterruptedException {
        free = new ArrayBlockingQueue<>(count);
        long end = System.nanoTime() + patience.toNanos();
        while (free.size() < count) {
            try {
                free.add(new Desk(DriverManager.getConnection(url), items, seed + free.size()));
            } catch (SQLException refused) {
                if (System.nanoTime() > end) {
                    throw refused;
                }
                Thread.sleep(200);
            }
        }
    }

    /** Answers one request; what the database refuses is an answer with status 500 that says so. */
    void answer(HttpExchange exchange, Work work) throws IOException {
        int status = 200;
        String text;
        Desk desk = take();
        try {
            text = work.at(desk);
        } catch (SQLException refused) {
            System.err.println("shop: " + refused.getMessage());
            status = 500;
            text = "the database refused\n";
        } finally {
            free.add(desk);
        }
        byte[] body = text.getBytes(StandardCharsets.US_ASCII);
        exchange.getResponseHeaders().set("Content-Type", "text/plain");
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    private Desk take() throws IOException {
        try {
            return free.take();
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new IOException(stopped);
        }
    }
}
