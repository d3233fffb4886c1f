// Writes the catalogs that the tests look at: one as publishers write them, one whose bundles carry their manifests, and one
// that tries all it can to run something.
import { mkdirSync, writeFileSync } from "node:fs";

const base64 = (text) => Buffer.from(text).toString("base64");
const lines = (blobs) => blobs.map((blob) => JSON.stringify(blob)).join("\n") + "\n";
const svg = (colour, shape) =>
  `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 40"><rect width="40" height="40" rx="9" fill="${colour}"/>${shape}</svg>`;
const icon = (text) => ({ base64data: base64(text), mediatype: "image/svg+xml" });
const property = (type, value) => ({ type, value });
const modes = (...supported) =>
  ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"].map((type) => ({ type, supported: supported.includes(type) }));

const description = `Harbour DB runs **highly available** database clusters on Kubernetes.

## Features

- Clusters with any number of replicas, spread over zones
- Backups to object storage, and restore to a point in time
- Rolling upgrades without downtime

## First cluster

\`\`\`yaml
apiVersion: db.harbour.example/v1
kind: Cluster
metadata:
  name: first
spec:
  replicas: 3
\`\`\`

| setting | default |
|---|---|
| \`replicas\` | 1 |
| \`backup.schedule\` | none |

See the [documentation](https://harbour.example/docs).`;

function bundle(name, version, about = {}) {
  const metadata = {
    annotations: {
      capabilities: "Deep Insights", categories: "Database, Storage", createdAt: about.createdAt ?? "2026-03-01T10:00:00Z",
      description: about.summary, repository: `https://git.example/${name}`, ...about.annotations,
    },
    displayName: about.title, description: about.description ?? about.summary, keywords: about.keywords ?? [name],
    provider: { name: about.provider ?? "Harbour Project" }, maintainers: [{ name: "The maintainers", email: `team@${name}.example` }],
    links: [{ name: "Documentation", url: `https://${name}.example/docs` }], maturity: "stable", minKubeVersion: "1.30.0",
    installModes: modes("OwnNamespace", "AllNamespaces"), apiServiceDefinitions: {},
    crdDescriptions: { owned: (about.apis ?? []).map((api) => ({ ...api, name: `${api.kind.toLowerCase()}s.${api.group}`, displayName: api.title, description: api.about })) },
  };
  return {
    schema: "olm.bundle", package: name, name: `${name}.v${version}`, image: `registry.example/${name}-bundle:v${version}`,
    relatedImages: [{ name: "operator", image: `registry.example/${name}@sha256:${"0123456789abcdef".repeat(4)}` }],
    properties: [
      property("olm.package", { packageName: name, version }),
      ...(about.apis ?? []).map(({ group, kind, version }) => property("olm.gvk", { group, kind, version })),
      ...(about.required ?? []), property("olm.csv.metadata", metadata),
    ],
  };
}

function showcase() {
  const name = "harbour-db";
  const versions = [];
  for (let minor = 0; minor <= 12; minor += 1) for (const patch of [0, 1]) versions.push(`1.${minor}.${patch}`);
  const published = (version) => {
    const [, minor, patch] = version.split(".").map(Number);
    return new Date(Date.UTC(2025, minor, patch ? 21 : 7, 9, 30)).toISOString();
  };
  const about = (version) => ({
    title: "Harbour DB", summary: "Highly available database clusters with backups and rolling upgrades.", description,
    keywords: ["database", "sql", "backup"], createdAt: published(version),
    apis: ["Cluster", "Backup", "User"].map((kind) => ({ group: "db.harbour.example", kind, version: "v1", title: `${kind} of databases`, about: `A ${kind.toLowerCase()} that the operator keeps as it is described.` })),
    required: [property("olm.gvk.required", { group: "cert-manager.io", kind: "Issuer", version: "v1" }), property("olm.package.required", { packageName: "lantern", versionRange: ">=1.0.0" }), property("olm.maxOpenShiftVersion", "4.22")],
  });
  const entries = (from, to) => versions.slice(from, to).map((version, at, all) => ({ name: `${name}.v${version}`, ...(at > 0 && { replaces: `${name}.v${all[at - 1]}` }) }));
  const stable = entries(0, 24);
  stable[23] = { name: stable[23].name, replaces: `${name}.v1.9.1`, skips: ["1.10.0", "1.10.1", "1.11.0"].map((version) => `${name}.v${version}`), skipRange: ">=1.5.0 <1.11.1" };
  const blobs = [
    { schema: "olm.package", name, defaultChannel: "stable", icon: icon(svg("#0b7285", `<ellipse cx="20" cy="12" rx="10" ry="4" fill="#fff"/><path d="M10 15v12c0 6 20 6 20 0V15c0 5-20 5-20 0z" fill="#c5f6fa"/>`)) },
    { schema: "olm.channel", package: name, name: "stable", entries: stable },
    { schema: "olm.channel", package: name, name: "candidate", entries: entries(20, 26) },
    { schema: "olm.channel", package: name, name: "1.4-eus", entries: entries(8, 10) },
    ...versions.map((version) => bundle(name, version, about(version))),
    { schema: "olm.deprecations", package: name, entries: [
      { reference: { schema: "olm.bundle", name: `${name}.v1.0.0` }, message: "1.0.0 loses backups. Move to 1.0.1." },
      { reference: { schema: "olm.channel", name: "1.4-eus" }, message: "Support ended. Use stable." }] },
  ];
  const areas = [["Database", "database"], ["Monitoring", "metrics"], ["Security", "policy"], ["Networking", "network"], ["Storage", "volume"], ["Streaming & Messaging", "queue"]];
  const levels = ["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"];
  const words = ["Anchor", "Beacon", "Compass", "Dinghy", "Estuary", "Fathom", "Galley", "Halyard", "Isle", "Jetty", "Keel", "Lagoon"];
  const colours = ["#3451d1", "#c2255c", "#14713d", "#b54708", "#862e9c", "#1971c2"];
  words.forEach((word, row) => areas.forEach(([category, noun], column) => {
    if (column > 2 && row > 8) return;
    const title = `${word} ${noun[0].toUpperCase()}${noun.slice(1)}`;
    const name = title.toLowerCase().replace(" ", "-");
    const shape = [`<circle cx="20" cy="20" r="9" fill="#fff"/>`, `<path d="M20 8l11 22H9z" fill="#fff"/>`, `<path d="M10 10h20v20H10z" fill="none" stroke="#fff" stroke-width="4"/>`][(row + column) % 3];
    const picture = (row + column) % 4 === 3 ? {} : { icon: icon(svg(colours[(row * 5 + column) % 6], shape)) };
    blobs.push({ schema: "olm.package", name, defaultChannel: "stable", ...picture },
      { schema: "olm.channel", package: name, name: "stable", entries: [{ name: `${name}.v1.${row}.${column}` }] },
      bundle(name, `1.${row}.${column}`, {
        title, createdAt: `2026-0${1 + (row * 5 + column) % 9}-1${column}T10:00:00Z`,
        provider: ["Harbour Project", "Example Systems", "Quay Labs"][(row + column) % 3], keywords: [noun],
        summary: `Runs and watches a ${noun} service for teams that would rather sail than bail.`,
        annotations: { categories: category, capabilities: levels[(row * 2 + column) % 5] }, apis: [{ group: `${noun}.example`, kind: word, version: "v1" }],
      }));
  }));
  blobs.push({ schema: "olm.package", name: "old-mill", defaultChannel: "stable", description: "Grinds." },
    { schema: "olm.channel", package: "old-mill", name: "stable", entries: [{ name: "old-mill.v0.3.0" }, { name: "old-mill.v9.9.9", replaces: "old-mill.v0.2.0" }] },
    bundle("old-mill", "0.3.0", { title: "Old Mill", summary: "Grinds." }),
    { schema: "olm.deprecations", package: "old-mill", entries: [{ reference: { schema: "olm.package" }, message: "Nobody maintains it. Use harbour-db." }] });
  return blobs;
}

function manifests() {
  const csv = {
    apiVersion: "operators.coreos.com/v1alpha1", kind: "ClusterServiceVersion", metadata: { name: "lantern.v1.0.0", annotations: { description: "Lights the way.", capabilities: "Full Lifecycle", categories: "Monitoring" } },
    spec: {
      displayName: "Lantern", description: "Lights the **way**.", version: "1.0.0", provider: { name: "Quay Labs" }, installModes: modes("AllNamespaces"), minKubeVersion: "1.29.0",
      customresourcedefinitions: { owned: [{ name: "lamps.lantern.example", kind: "Lamp", version: "v1", description: "A lamp." }] },
      install: { strategy: "deployment", spec: {
        clusterPermissions: [{ serviceAccountName: "lantern", rules: [{ apiGroups: [""], resources: ["nodes"], verbs: ["get", "list"] }] }],
        permissions: [{ serviceAccountName: "lantern", rules: [{ apiGroups: ["apps"], resources: ["deployments"], verbs: ["*"] }] }] } },
    },
  };
  return [
    { schema: "olm.package", name: "lantern", defaultChannel: "stable" },
    { schema: "olm.channel", package: "lantern", name: "stable", entries: [{ name: "lantern.v1.0.0" }] },
    { schema: "olm.bundle", package: "lantern", name: "lantern.v1.0.0", image: "registry.example/lantern:1", properties: [
      property("olm.package", { packageName: "lantern", version: "1.0.0" }), property("olm.gvk", { group: "lantern.example", kind: "Lamp", version: "v1" }),
      property("olm.bundle.object", { data: base64(JSON.stringify(csv)) })] },
    // Its description is longer than a screen.
    { schema: "olm.package", name: "almanac", defaultChannel: "stable", description: "A chapter of the manual.\n\n".repeat(150) + "The end of the manual." },
    { schema: "olm.channel", package: "almanac", name: "stable", entries: [{ name: "almanac.v1.0.0" }] },
    { schema: "olm.bundle", package: "almanac", name: "almanac.v1.0.0", image: "registry.example/almanac:1", properties: [property("olm.package", { packageName: "almanac", version: "1.0.0" })] },
  ];
}

/** Every text of this catalog tries to run `pwned = 1` or to load something from elsewhere. */
function hostile() {
  const run = "pwned=1;alert(1)";
  const texts = [
    `<script>${run}</script>`, `"><img src=x onerror="${run}">`, `'><svg onload='${run}'>`, `</title></style></textarea></script><script>${run}</script>`,
    `<iframe srcdoc="<script>parent.${run}</script>"></iframe>`, `<link rel=stylesheet href=http://evil.example/x.css>`, `{{constructor.constructor('${run}')()}}`,
    `<meta http-equiv=refresh content="0;url=http://evil.example/">`, `<base href="http://evil.example/">`, `\u202e\u0007\u2028 <b>`, `<form action=http://evil.example><button>x</button>`,
  ];
  const all = texts.join(" ");
  const markdown = [...texts, `[x](javascript:${run})`, `![x](http://evil.example/p.png)`, `[x](data:text/html,<script>${run}</script>)`, `<javascript:${run}>`,
    `[x]: http://evil.example/ "onmouseover=${run}"`, `\`\`\`"><script>${run}</script>\nx\n\`\`\``, `<a href="x" onclick="${run}">x</a>`, `# <script>${run}</script>`].join("\n\n");
  const evil = `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" onload="${run}"><script>${run}</script><image href="http://evil.example/i.png"/><style>@import url(http://evil.example/i.css);</style><foreignObject><iframe xmlns="http://www.w3.org/1999/xhtml" src="http://evil.example/"/></foreignObject></svg>`;
  const long = "long-".repeat(150);
  const blobs = [];
  for (const [at, name] of ["evil", ...texts, long].entries()) {
    const bundleName = at === 0 ? "evil.v1.0.0" : `${name}.v1`;
    blobs.push(
      { schema: "olm.package", name, defaultChannel: all, description: markdown, icon: at % 2 ? { base64data: `" onerror="${run}`, mediatype: "image/png" } : icon(evil) },
      { schema: "olm.channel", package: name, name: all, entries: [{ name: bundleName, replaces: all, skips: texts, skipRange: all }, { name: `${all}2` }] },
      { schema: "olm.channel", package: name, name: long, entries: [{ name: bundleName }] },
      { schema: "olm.bundle", package: name, name: bundleName, image: all, relatedImages: [{ name: all, image: all }, { name: long, image: long }], properties: [
        property("olm.package", { packageName: name, version: "1.0.0" }), property("olm.gvk", { group: all, kind: all, version: all }), property("olm.gvk.required", { group: all, kind: all, version: all }),
        property("olm.package.required", { packageName: all, versionRange: all }), property("olm.constraint", { failureMessage: all }), property("olm.maxOpenShiftVersion", all),
        property("olm.csv.metadata", {
          annotations: { description: all, categories: texts.join(","), capabilities: all, createdAt: all, repository: `javascript:${run}`, certified: "true", "operatorframework.io/suggested-namespace": `x\n---\n${all}` },
          displayName: all, description: markdown, keywords: [...texts, long], provider: { name: all }, maturity: all, minKubeVersion: all, installModes: texts.map((type) => ({ type, supported: true })),
          maintainers: texts.map((text) => ({ name: text, email: `a@b?bcc=${text}` })), links: [{ name: all, url: `javascript:${run}` }, { name: "x", url: `https://x.example/"onclick="${run}` }],
          crdDescriptions: { owned: [{ kind: all, name: all, version: all, displayName: all, description: all }], required: [{ kind: all, name: all, version: all }] }, apiServiceDefinitions: {},
        })] },
      { schema: "olm.deprecations", package: name, entries: [{ reference: { schema: "olm.package" }, message: all }, { reference: { schema: "olm.bundle", name: bundleName }, message: all }, { reference: { schema: "olm.channel", name: all }, message: all }] },
    );
  }
  return blobs;
}

const out = process.argv[2];
for (const [name, blobs] of Object.entries({ showcase: showcase(), manifests: manifests(), hostile: hostile() })) {
  mkdirSync(`${out}/${name}`, { recursive: true });
  writeFileSync(`${out}/${name}/catalog.json`, lines(blobs));
}
