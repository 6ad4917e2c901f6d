// Jedis' cluster client through the events of test_cluster.py, which tells what the lines mean.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;
import redis.clients.jedis.ClusterPipeline;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.Response;
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

    static void turn(long i) throws InterruptedException {
        String key = "java:" + i % 40;
        attempt(() -> jedis.set(key, "" + i, SetParams.setParams().ex(1000)));
        check(key, attempt(() -> jedis.get(key)), i);
        long ttl = attempt(() -> jedis.ttl(key));
        if (ttl <= 900 || ttl > 1000) check(key + "'s TTL", ttl, "about 1000");
        attempt(() -> {
            try (ClusterPipeline p = jedis.pipelined()) {
                for (int j = 0; j < 20; j++) p.set("java:p" + j, "" + i);
                Response<String> last = p.get("java:p19");
                p.sync();
                check("java:p19", last.get(), i);
            }
            return null;
        });
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
