package shop;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Arrays;
import java.util.Random;

/** One connection to the database and what is done over it. One thread has it at a time. */
final class Desk {
    private static final int CUSTOMERS = 1000;
    /** Items that a page shows, and that a purchase has at most. */
    private static final int SHOWN = 10;
    private static final int BOUGHT = 5;
    /** Purchases of one customer that are shown. */
    private static final int LISTED = 10;

    private final Connection connection;
    private final Random random;
    private final int items;
    private final PreparedStatement show;
    private final PreparedStatement price;
    private final PreparedStatement take;
    private final PreparedStatement buy;
    private final PreparedStatement line;
    private final PreparedStatement list;
    private final PreparedStatement ship;

    Desk(Connection connection, int items, long seed) throws SQLException {
        this.connection = connection;
        this.items = items;
        random = new Random(seed);
        connection.setAutoCommit(false);
        show = connection.prepareStatement("select id, name, price, stock from item where id between ? and ?");
        price = connection.prepareStatement("select price from item where id = ?");
        take = connection.prepareStatement("update item set stock = if(stock >= ?, stock - ?, 1000000) where id = ?");
        String purchase = "insert into purchase (customer, total) values (?, ?)";
        buy = connection.prepareStatement(purchase, Statement.RETURN_GENERATED_KEYS);
        line = connection.prepareStatement("insert into line (purchase, item, quantity) values (?, ?, ?)");
        list = connection.prepareStatement(
            "select id, total, state from purchase where customer = ? order by id desc limit " + LISTED);
        ship = connection.prepareStatement("update purchase set state = state + 1 where id = ? and state < 3");
    }

    /** Three pages of items. */
    String browse() throws SQLException {
        StringBuilder page = new StringBuilder(4096);
        for (int number = 0; number < 3; number++) {
            int first = 1 + random.nextInt(Math.max(1, items - SHOWN));
            show.setInt(1, first);
            show.setInt(2, first + SHOWN - 1);
            try (ResultSet found = show.executeQuery()) {
                while (found.next()) {
                    page.append(found.getInt(1)).append(' ').append(found.getString(2)).append(' ');
                    page.append(found.getInt(3)).append(' ').append(found.getInt(4)).append('\n');
                }
            }
        }
        connection.commit();
        if (page.isEmpty()) {
            throw new SQLException("no item was found");
        }
        return page.toString();
    }

    /** Some items are bought: all of it, or nothing. */
    String purchase() throws SQLException {
        // In the order of their numbers, so that no two purchases wait for each other for ever.
        int[] bought = random.ints(1 + random.nextInt(BOUGHT), 1, items + 1).distinct().toArray();
        Arrays.sort(bought);
        try {
            int total = 0;
            for (int item : bought) {
                price.setInt(1, item);
                try (ResultSet found = price.executeQuery()) {
                    if (!found.next()) {
                        throw new SQLException("item " + item + " is not there");
                    }
                    total += found.getInt(1);
                }
                take.setInt(1, 1);
                take.setInt(2, 1);
                take.setInt(3, item);
                take.executeUpdate();
            }
            buy.setInt(1, random.nextInt(CUSTOMERS));
            buy.setInt(2, total);
            buy.executeUpdate();
            int id;
            try (ResultSet keys = buy.getGeneratedKeys()) {
                if (!keys.next()) {
                    throw new SQLException("the purchase has no number");
                }
                id = keys.getInt(1);
            }
            for (int item : bought) {
                line.setInt(1, id);
                line.setInt(2, item);
                line.setInt(3, 1);
                line.executeUpdate();
            }
            connection.commit();
            return "purchase " + id + ' ' + total + '\n';
        } catch (SQLException refused) {
            connection.rollback();
            throw refused;
        }
    }

    /** The last purchases of a customer; the first of them goes a step on. */
    String manage() throws SQLException {
        StringBuilder page = new StringBuilder(512);
        int first = 0;
        try {
            list.setInt(1, random.nextInt(CUSTOMERS));
            try (ResultSet found = list.executeQuery()) {
                while (found.next()) {
                    first = first == 0 ? found.getInt(1) : first;
                    page.append(found.getInt(1)).append(' ').append(found.getInt(2)).append(' ');
                    page.append(found.getInt(3)).append('\n');
                }
            }
            if (first != 0) {
                ship.setInt(1, first);
                ship.executeUpdate();
            }
            connection.commit();
        } catch (SQLException refused) {
            connection.rollback();
            throw refused;
        }
        return page.append("end\n").toString();
    }
}
