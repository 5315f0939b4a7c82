// Everyday life with Eclipse Paho's C client: `everyday URL VERSION NAME AUTHORITY` ends with status 0 if all checks hold.

#include <MQTTClient.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT 20000
#define CHECK(what) \
  do { \
    if (!(what)) { \
      fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
      exit(1); \
    } \
  } while (0)

static const char *url, *name, *authority;
static int version, keep_alive_seconds = 20;

static char *text(const char *first, const char *second) {
  static char made[8][200];
  static int next;
  char *here = made[next++ % 8];
  snprintf(here, sizeof made[0], "%s%s", first, second);
  return here;
}

static void add_number(MQTTProperties *properties, enum MQTTPropertyCodes code, unsigned number) {
  MQTTProperty property = {.identifier = code};
  // Of these, only the alias has two octets.
  if (code == MQTTPROPERTY_CODE_TOPIC_ALIAS || code == MQTTPROPERTY_CODE_RECEIVE_MAXIMUM) property.value.integer2 = number;
  else property.value.integer4 = number;
  CHECK(MQTTProperties_add(properties, &property) == 0);
}

static void add_text(MQTTProperties *properties, enum MQTTPropertyCodes code, char *key, char *value) {
  MQTTProperty property = {.identifier = code};
  property.value.data = (MQTTLenString){strlen(key), key};
  if (value) property.value.value = (MQTTLenString){strlen(value), value};
  CHECK(MQTTProperties_add(properties, &property) == 0);
}

static MQTTClient make(const char *id) {
  MQTTClient client;
  MQTTClient_createOptions options = MQTTClient_createOptions_initializer;
  options.MQTTVersion = version;
  CHECK(MQTTClient_createWithOptions(&client, url, text(name, id), MQTTCLIENT_PERSISTENCE_NONE, NULL, &options) == 0);
  return client;
}

// Return the reason; `seconds`: how long the session is to be kept; `present`: whether the broker has to know it,
// which the client tells with MQTT 3.1.1 only.
static int log_in(MQTTClient client, const char *password, int seconds, int present, MQTTClient_willOptions *will) {
  MQTTClient_connectOptions three = MQTTClient_connectOptions_initializer, five = MQTTClient_connectOptions_initializer5;
  MQTTClient_connectOptions options = version == 5 ? five : three;
  MQTTClient_SSLOptions tls = MQTTClient_SSLOptions_initializer;
  MQTTProperties properties = MQTTProperties_initializer;
  options.MQTTVersion = version;
  options.username = "guest";
  options.password = password;
  options.keepAliveInterval = keep_alive_seconds;
  options.will = will;
  if (version == 5) options.cleanstart = !seconds;
  else options.cleansession = !seconds;
  if (!strncmp(url, "ssl", 3)) {
    tls.trustStore = authority;
    options.ssl = &tls;
  }
  if (version == 5) {
    add_number(&properties, MQTTPROPERTY_CODE_SESSION_EXPIRY_INTERVAL, seconds);
    add_number(&properties, MQTTPROPERTY_CODE_RECEIVE_MAXIMUM, 2);
    MQTTResponse response = MQTTClient_connect5(client, &options, &properties, NULL);
    int reason = response.reasonCode;
    MQTTResponse_free(response);
    MQTTProperties_free(&properties);
    return reason;
  }
  int reason = MQTTClient_connect(client, &options);
  if (!reason && version == 4) CHECK(options.returned.sessionPresent == present);
  return reason;
}

static MQTTClient connected(const char *id) {
  MQTTClient client = make(id);
  CHECK(log_in(client, "guest", 0, 0, NULL) == 0);
  return client;
}

static void leave(MQTTClient client) {
  CHECK((version == 5 ? MQTTClient_disconnect5(client, 1000, 0, NULL) : MQTTClient_disconnect(client, 1000)) == 0);
  MQTTClient_destroy(&client);
}

static void subscribe(MQTTClient client, const char *topic, int qos, MQTTProperties *properties) {
  if (version == 5) {
    MQTTSubscribe_options options = MQTTSubscribe_options_initializer;
    MQTTResponse response = MQTTClient_subscribe5(client, topic, qos, &options, properties);
    CHECK(response.reasonCode == (enum MQTTReasonCodes)qos);
    MQTTResponse_free(response);
  } else CHECK(MQTTClient_subscribe(client, topic, qos) == 0);
}

static void publish(MQTTClient client, const char *topic, const char *body, int size, int qos, int retained, MQTTProperties *properties) {
  MQTTClient_message message = MQTTClient_message_initializer;
  MQTTClient_deliveryToken token = 0;
  message.payload = (void *)body;
  message.payloadlen = size;
  message.qos = qos;
  message.retained = retained;
  if (version == 5) {
    if (properties) message.properties = *properties;
    MQTTResponse response = MQTTClient_publishMessage5(client, topic, &message, &token);
    CHECK(response.reasonCode == 0);
    MQTTResponse_free(response);
  } else CHECK(MQTTClient_publishMessage(client, topic, &message, &token) == 0);
  if (qos) CHECK(MQTTClient_waitForCompletion(client, token, TIMEOUT) == 0);
}

// Expect a message, and return it; `body` of NULL: whatever it is.
static MQTTClient_message *expect(MQTTClient client, const char *topic, const char *body, int qos, int retained) {
  MQTTClient_message *message = NULL;
  char *its_topic = NULL;
  int length;
  int reason = MQTTClient_receive(client, &its_topic, &length, &message, TIMEOUT);
  CHECK(reason == MQTTCLIENT_SUCCESS || reason == MQTTCLIENT_TOPICNAME_TRUNCATED);
  CHECK(message);
  CHECK(!strcmp(its_topic, topic));
  CHECK(message->qos == qos && message->retained == retained && !message->dup);
  if (body) CHECK(message->payloadlen == (int)strlen(body) && !memcmp(message->payload, body, message->payloadlen));
  MQTTClient_free(its_topic);
  return message;
}

static void gets(MQTTClient client, const char *topic, const char *body, int qos, int retained) {
  MQTTClient_message *message = expect(client, topic, body, qos, retained);
  MQTTClient_freeMessage(&message);
}

static void messages_of_every_qos(void) {
  MQTTClient reader = connected("r"), writer = connected("w");
  char body[10];
  subscribe(reader, text(name, "/+/a"), 2, NULL);
  for (int n = 0; n < 12; n++) {
    snprintf(body, sizeof body, "%d", n);
    publish(writer, text(name, "/x/a"), body, strlen(body), n % 3, 0, NULL);
    gets(reader, text(name, "/x/a"), body, n % 3, 0);
  }
  CHECK(MQTTClient_unsubscribe(reader, text(name, "/+/a")) == 0);
  leave(reader);
  leave(writer);
}

static void a_large_message(void) {
  int size = 3000000;
  MQTTClient client = connected("l");
  char *body = malloc(size);
  for (int n = 0; n < size; n++) body[n] = n * 7 / 3;
  subscribe(client, text(name, "/l"), 1, NULL);
  publish(client, text(name, "/l"), body, size, 1, 0, NULL);
  MQTTClient_message *message = expect(client, text(name, "/l"), NULL, 1, 0);
  CHECK(message->payloadlen == size && !memcmp(message->payload, body, size));
  MQTTClient_freeMessage(&message);
  free(body);
  leave(client);
}

static void retained_and_removed(void) {
  MQTTClient client = connected("r");
  publish(client, text(name, "/r"), "kept", 4, 2, 1, NULL);
  subscribe(client, text(name, "/#"), 1, NULL);
  gets(client, text(name, "/r"), "kept", 1, 1);
  publish(client, text(name, "/r"), "", 0, 1, 1, NULL);
  gets(client, text(name, "/r"), "", 1, 0);
  leave(client);
}

static void a_will(void) {
  MQTTClient witness = connected("w");
  MQTTClient_willOptions will = MQTTClient_willOptions_initializer;
  will.topicName = text(name, "/will");
  will.message = "gone";
  will.qos = 1;
  subscribe(witness, text(name, "/will"), 1, NULL);
  int child = fork();
  // It ends without a DISCONNECT.
  if (!child) _exit(log_in(make("d"), "guest", 0, 0, &will));
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  gets(witness, text(name, "/will"), "gone", 1, 0);
  leave(witness);
}

static void a_session_goes_on(void) {
  MQTTClient first = make("s"), writer = connected("w");
  CHECK(log_in(first, "guest", 100, 0, NULL) == 0);
  subscribe(first, text(name, "/s"), 2, NULL);
  leave(first);
  MQTTProperties brief = MQTTProperties_initializer;
  if (version == 5) {
    // At once, while the broker may still be busy with the end of the connection.
    add_number(&brief, MQTTPROPERTY_CODE_MESSAGE_EXPIRY_INTERVAL, 1);
    publish(writer, text(name, "/s"), "brief", 5, 1, 0, &brief);
    MQTTProperties_free(&brief);
  }
  publish(writer, text(name, "/s"), "while away", 10, 1, 0, NULL);
  publish(writer, text(name, "/s"), "and again", 9, 2, 0, NULL);
  if (version == 5) sleep(2);
  MQTTClient second = make("s");
  CHECK(log_in(second, "guest", 100, 1, NULL) == 0);
  gets(second, text(name, "/s"), "while away", 1, 0);
  gets(second, text(name, "/s"), "and again", 2, 0);
  leave(second);
  leave(connected("s"));
  leave(writer);
}

static void properties_and_aliases(void) {
  if (version != 5) return;
  MQTTClient client = connected("p");
  MQTTProperties wanted = MQTTProperties_initializer, said = MQTTProperties_initializer;
  add_number(&wanted, MQTTPROPERTY_CODE_SUBSCRIPTION_IDENTIFIER, 268435455);
  subscribe(client, text(name, "/p"), 1, &wanted);
  add_text(&said, MQTTPROPERTY_CODE_CONTENT_TYPE, "text/plain", NULL);
  add_text(&said, MQTTPROPERTY_CODE_RESPONSE_TOPIC, "answers", NULL);
  add_text(&said, MQTTPROPERTY_CODE_CORRELATION_DATA, "c", NULL);
  add_text(&said, MQTTPROPERTY_CODE_USER_PROPERTY, "a", "1");
  add_text(&said, MQTTPROPERTY_CODE_USER_PROPERTY, "a", "2");
  add_number(&said, MQTTPROPERTY_CODE_TOPIC_ALIAS, 3);
  for (int n = 0; n < 3; n++) {
    // The second and the third have no topic, but the alias.
    publish(client, n ? "" : text(name, "/p"), "x", 1, 1, 0, &said);
    MQTTClient_message *message = expect(client, text(name, "/p"), "x", 1, 0);
    MQTTProperties *came = &message->properties;
    CHECK(MQTTProperties_getNumericValue(came, MQTTPROPERTY_CODE_SUBSCRIPTION_IDENTIFIER) == 268435455);
    CHECK(!strncmp(MQTTProperties_getProperty(came, MQTTPROPERTY_CODE_CONTENT_TYPE)->value.data.data, "text/plain", 10));
    CHECK(!strncmp(MQTTProperties_getProperty(came, MQTTPROPERTY_CODE_RESPONSE_TOPIC)->value.data.data, "answers", 7));
    CHECK(MQTTProperties_getProperty(came, MQTTPROPERTY_CODE_CORRELATION_DATA)->value.data.len == 1);
    CHECK(*MQTTProperties_getPropertyAt(came, MQTTPROPERTY_CODE_USER_PROPERTY, 1)->value.value.data == '2');
    MQTTClient_freeMessage(&message);
  }
  MQTTProperties_free(&wanted);
  MQTTProperties_free(&said);
  leave(client);
}

static void keep_alive(void) {
  keep_alive_seconds = 1;
  MQTTClient client = connected("k");
  for (int n = 0; n < 30; n++) {
    MQTTClient_yield(); // which sends the pings
    usleep(100000);
  }
  CHECK(MQTTClient_isConnected(client));
  leave(client);
}

static void a_wrong_password(void) {
  MQTTClient client = make("x");
  int reason = log_in(client, "wrong", 0, 0, NULL);
  // Brokers differ in which of the two reasons they give.
  CHECK(version == 5 ? reason == 134 || reason == 135 : reason == 4 || reason == 5);
  MQTTClient_destroy(&client);
}

int main(int count, char **arguments) {
  CHECK(count == 5);
  url = arguments[1];
  version = atoi(arguments[2]);
  name = arguments[3];
  authority = arguments[4];
  MQTTClient_init_options options = MQTTClient_init_options_initializer;
  options.do_openssl_init = 1;
  MQTTClient_global_init(&options);
  messages_of_every_qos();
  a_large_message();
  retained_and_removed();
  a_will();
  a_session_goes_on();
  properties_and_aliases();
  keep_alive();
  a_wrong_password();
  return 0;
}
