package warehouses;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * One warehouse with its districts, customers, stock and orders, all in maps on the heap. One thread works on it at a time:
 * no locks, no I/O, no think time.
 */
final class Warehouse {
    private static final int DISTRICTS = 10;
    private static final int CUSTOMERS = 60;
    /** Orders that a district remembers once they are delivered, and those that may wait. */
    private static final int REMEMBERED = 100;
    private static final int WAITING = 30;
    private static final int LOW_STOCK = 15;

    private final Catalogue catalogue;
    private final Generator random;
    private final Map<Integer, Stock> stock = new HashMap<>();
    private final District[] districts = new District[DISTRICTS];
    private long takings;
    private long day;
    /** What all transactions gave: equal on two machines that did the same, and no compiler may leave the work out. */
    private long digest;

    private static final class Stock {
        int quantity;
        long sold;
        int orders;
    }

    private static final class Customer {
        long balance;
        long paid;
        Order last;
        final ArrayDeque<String> history = new ArrayDeque<>();
    }

    private record Line(int item, int quantity, long amount) {}

    private static final class Order {
        final long number;
        final int customer;
        final Line[] lines;
        int carrier;

        Order(long number, int customer, Line[] lines) {
            this.number = number;
            this.customer = customer;
            this.lines = lines;
        }

        long amount() {
            long sum = 0;
            for (Line line : lines) {
                sum += line.amount();
            }
            return sum;
        }
    }

    private static final class District {
        final Map<Integer, Customer> customers = new HashMap<>();
        final TreeMap<Long, Order> orders = new TreeMap<>();
        final ArrayDeque<Order> waiting = new ArrayDeque<>();
        long next = 1;
        long takings;
    }

    Warehouse(Catalogue catalogue, long seed) {
        this.catalogue = catalogue;
        random = new Generator(seed);
        for (int item = 0; item < catalogue.size(); item++) {
            Stock one = new Stock();
            one.quantity = random.between(10, 100);
            stock.put(item, one);
        }
        for (int number = 0; number < DISTRICTS; number++) {
            District district = new District();
            for (int customer = 0; customer < CUSTOMERS; customer++) {
                district.customers.put(customer, new Customer());
            }
            districts[number] = district;
        }
    }

    /** One transaction: ten orders and ten payments to one status, one delivery and one look at the stock. */
    void transact() {
        int kind = random.below(23);
        District district = districts[random.below(DISTRICTS)];
        long result;
        if (kind < 10) {
            result = order(district);
        } else if (kind < 20) {
            result = pay(district);
        } else if (kind == 20) {
            result = status(district);
        } else if (kind == 21) {
            result = deliver();
        } else {
            result = lowStock(district);
        }
        digest = digest * 31 + result;
    }

    long digest() {
        return digest;
    }

    private long order(District district) {
        int who = random.skewed(CUSTOMERS);
        Line[] lines = new Line[random.between(5, 15)];
        // One in a hundred is called off, when it is nearly done.
        boolean calledOff = random.below(100) == 0;
        StringBuilder receipt = new StringBuilder(256).append("customer ").append(who).append('\n');
        for (int number = 0; number < lines.length; number++) {
            int item = random.skewed(catalogue.size());
            int quantity = random.between(1, 10);
            lines[number] = new Line(item, quantity, (long) quantity * catalogue.price(item));
            receipt.append(catalogue.name(item)).append(' ').append(quantity).append(" x ");
            receipt.append(catalogue.price(item) / 100).append('.').append(catalogue.price(item) % 100).append('\n');
        }
        if (calledOff) {
            return -1;
        }
        for (Line line : lines) {
            Stock one = stock.get(line.item());
            one.quantity -= line.quantity();
            if (one.quantity < 10) {
                one.quantity += 91;
            }
            one.sold += line.amount();
            one.orders++;
        }
        Order order = new Order(district.next++, who, lines);
        district.orders.put(order.number, order);
        district.waiting.add(order);
        district.customers.get(who).last = order;
        receipt.append("total ").append(order.amount() / 100);
        return receipt.toString().hashCode();
    }

    private long pay(District district) {
        int who = random.skewed(CUSTOMERS);
        Customer customer = district.customers.get(who);
        long amount = random.between(100, 500_000);
        customer.balance -= amount;
        customer.paid += amount;
        district.takings += amount;
        takings += amount;
        customer.history.addLast(day + ":" + who + ":" + amount / 100);
        if (customer.history.size() > 10) {
            customer.history.removeFirst();
        }
        return customer.balance;
    }

    private long status(District district) {
        Customer customer = district.customers.get(random.skewed(CUSTOMERS));
        Order last = customer.last;
        return last == null ? customer.balance : customer.balance + last.amount() + last.carrier;
    }

    private long deliver() {
        day++;
        int carrier = random.between(1, 10);
        long delivered = 0;
        for (District district : districts) {
            do {
                Order order = district.waiting.pollFirst();
                if (order == null) {
                    break;
                }
                order.carrier = carrier;
                district.customers.get(order.customer).balance += order.amount();
                delivered += order.number;
            } while (district.waiting.size() > WAITING);
            while (district.orders.size() > REMEMBERED) {
                district.orders.pollFirstEntry();
            }
        }
        return delivered;
    }

    private long lowStock(District district) {
        Set<Integer> low = new HashSet<>();
        Iterator<Order> orders = district.orders.descendingMap().values().iterator();
        for (int seen = 0; seen < 20 && orders.hasNext(); seen++) {
            for (Line line : orders.next().lines) {
                if (stock.get(line.item()).quantity < LOW_STOCK) {
                    low.add(line.item());
                }
            }
        }
        return low.size();
    }

    /** Whether the books agree: what the districts and the customers say was paid is what the warehouse took in. */
    boolean balances() {
        long ofDistricts = 0;
        long ofCustomers = 0;
        for (District district : districts) {
            ofDistricts += district.takings;
            for (Customer customer : district.customers.values()) {
                ofCustomers += customer.paid;
            }
        }
        return takings == ofDistricts && takings == ofCustomers;
    }
}
