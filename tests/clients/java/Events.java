// Jedis' cluster client through the events of test_cluster_clients.py, which tells what the lines mean.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;
import redis.clients.jedis.ClusterPipeline;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisMovedDataException;
import redis.clients.jedis.params.SetParams;

public class Events {
    static final AtomicLong turns = new AtomicLong(), errors = new AtomicLong(), wrong = new AtomicLong();
    static JedisCluster jedis;

    static void check(String what, Object got, Object wanted) {
        if (String.valueOf(got).equals(String.valueOf(wanted))) return;
        wrong.incrementAndGet();
        System.err.println(what + " is " + got + " and not " + wanted);
    }

    /** Until it succeeds. */
    static <T> T attempt(Callable<T> f) throws InterruptedException {
        while (true) {
            try {
                return f.call();
            } catch (Exception e) {
                errors.incrementAndGet();
                System.err.println(e);
                Thread.sleep(50);
            }
        }
    }

    /** A key that lives for 50 ms: it is gone when that time is over, and was not gone before. */
    static void brief(long i) throws InterruptedException {
        String key = "java:s" + i % 40;
        long begin = System.nanoTime();
        attempt(() -> jedis.set(key, "x", SetParams.setParams().px(50)));
        long setBy = System.nanoTime();
        String got = attempt(() -> jedis.get(key));
        if (got == null && System.nanoTime() < begin + 50_000_000) check(key, got, "x");
        if (i % 10 != 0) return;
        Thread.sleep(Math.max(0, (setBy + 51_000_000 - System.nanoTime()) / 1_000_000 + 1));
        check(key, attempt(() -> jedis.get(key)), null);
    }

    /** Pipelines do not follow MOVED, nor look for another node; only ordinary commands do. */
    static Void pipeline(long i) throws InterruptedException {
        while (true) {
            try (ClusterPipeline p = jedis.pipelined()) {
                List<Response<String>> replies = new ArrayList<>();
                for (int j = 0; j < 20; j++) replies.add(p.set("java:p" + j, "" + i));
                Response<String> last = p.get("java:p19");
                p.sync();
                for (Response<String> reply : replies) check("SET's reply", reply.get(), "OK");
                check("java:p19", last.get(), i);
                return null;
            } catch (JedisMovedDataException | JedisConnectionException e) {
                if (e instanceof JedisConnectionException) errors.incrementAndGet();
                for (int j = 0; j < 20; j++) {
                    String key = "java:p" + j;
                    attempt(() -> jedis.get(key));
                }
            }
        }
    }

    static void turn(long i) throws InterruptedException {
        String key = "java:" + i % 40;
        attempt(() -> jedis.set(key, "" + i, SetParams.setParams().ex(1000)));
        check(key, attempt(() -> jedis.get(key)), i);
        long ttl = attempt(() -> jedis.ttl(key));
        if (ttl <= 900 || ttl > 1000) check(key + "'s TTL", ttl, "about 1000");
        brief(i);
        attempt(() -> pipeline(i));
        attempt(() -> jedis.hset("{java}h", "f", "" + i));
        check("{java}h", attempt(() -> jedis.hget("{java}h", "f")), i);
        turns.incrementAndGet();
    }

    public static void main(String[] args) throws Exception {
        jedis = new JedisCluster(java.util.Set.of(HostAndPort.from(args[0])), DefaultJedisClientConfig.builder().build(), 50,
                                 Duration.ofSeconds(60), new GenericObjectPoolConfig<>());
        Thread worker = new Thread(() -> {
            try {
                for (long i = 1;; i++) turn(i);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        });
        worker.setDaemon(true);
        worker.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null;)
            if (line.trim().equals("look")) System.out.println(turns + " " + errors + " " + wrong);
    }
}
