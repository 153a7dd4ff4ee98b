// A real OpenID Connect provider (oidc-provider, certified) for test_oidc.py, with a door for the test: POST /control
// says who the next person is, and what is wrong with the provider. It prints its address once it listens.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { generateKeyPairSync, randomUUID } from "node:crypto";

const require = createRequire(import.meta.url);
const load = (name) => import(name).catch(() => require(name)); // by NODE_PATH too, which import does not look at
const { Provider } = await load("oidc-provider");
const { SignJWT, decodeJwt, importJWK } = await load("jose");

const redirect = process.argv[2];
let person = { sub: "nobody", claims: {} };
let isForging = false;

function newKey(kid = randomUUID()) {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), kid, use: "sig", alg: "RS256" };
}

function made(issuer, key) {
  const provider = new Provider(issuer, {
    jwks: { keys: [key] },
    clients: [
      {
        client_id: "pitwall",
        client_secret: "a secret of the test",
        redirect_uris: [`${redirect}/signin/oidc/callback`],
        post_logout_redirect_uris: [`${redirect}/signin`],
      },
    ],
    claims: { openid: ["sub"], profile: ["preferred_username"], email: ["email"], groups: ["groups"] },
    scopes: ["openid", "profile", "email", "groups"],
    pkce: { required: () => true },
    features: { devInteractions: { enabled: false }, rpInitiatedLogout: { enabled: true } },
    interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_ctx, sub) => ({ accountId: sub, claims: () => ({ sub, ...person.claims }) }),
    loadExistingGrant: async (ctx) => {
      const grant = new ctx.oidc.provider.Grant({
        clientId: ctx.oidc.client.clientId,
        accountId: ctx.oidc.session.accountId,
      });
      grant.addOIDCScope("openid profile email groups");
      await grant.save();
      return grant;
    },
    cookies: { keys: ["only for a test"] },
    ttl: { AccessToken: 300, AuthorizationCode: 60, Grant: 300, IdToken: 300, Interaction: 300, Session: 300 },
  });
  const handle = provider.callback();
  return async (request, response) => {
    if (request.url.startsWith("/interaction/")) {
      if (person.says_no) return provider.interactionFinished(request, response, { error: "access_denied" });
      return provider.interactionFinished(request, response, { login: { accountId: person.sub } });
    }
    return handle(request, response);
  };
}

// What the provider signed, signed anew with a key that is not the provider's and says it is.
async function forged(body, key) {
  const answer = JSON.parse(body);
  const other = await importJWK(newKey(key.kid), "RS256");
  answer.id_token = await new SignJWT(decodeJwt(answer.id_token))
    .setProtectedHeader({ alg: "RS256", kid: key.kid })
    .sign(other);
  return JSON.stringify(answer);
}

let key = newKey();
let handle;
const server = createServer(async (request, response) => {
  if (request.url === "/control") {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const told = JSON.parse(Buffer.concat(chunks).toString());
    if (told.person) person = told.person;
    if ("forges" in told) isForging = told.forges;
    if (told.rotates) {
      key = newKey();
      handle = made(issuer, key);
    }
    return response.end("{}");
  }
  if (isForging && request.url === "/token") {
    const end = response.end.bind(response);
    response.removeHeader("content-length");
    response.end = (body) => {
      forged(body, key).then((text) => {
        response.setHeader("content-length", Buffer.byteLength(text));
        end(text);
      });
      return response;
    };
  }
  return handle(request, response);
});
let issuer;
server.listen(0, "127.0.0.1", () => {
  issuer = `http://127.0.0.1:${server.address().port}`;
  handle = made(issuer, key);
  console.log(issuer);
});
process.stdin.resume().on("end", () => process.exit()); // ends with the test that started it
