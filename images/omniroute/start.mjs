// Start OmniRoute in this process, its secrets read from files: neither the command line nor the container's
// configuration holds them.
import { readFileSync } from "node:fs";

const FOLDER = "/run/school-secrets";
const SECRETS = {
  JWT_SECRET: "jwt_secret",
  API_KEY_SECRET: "api_key_secret",
  STORAGE_ENCRYPTION_KEY: "storage_key",
  INITIAL_PASSWORD: "admin_password",
};

for (const [name, file] of Object.entries(SECRETS)) {
  let value = "";
  try {
    value = readFileSync(`${FOLDER}/${file}`, "utf8").trim();
  } catch (error) {
    console.error(`The secret ${FOLDER}/${file} can't be read: ${error.code}. Mount the folder of secrets there.`);
    process.exit(78);
  }
  if (!value) {
    console.error(`The secret ${FOLDER}/${file} is empty.`);
    process.exit(78);
  }
  process.env[name] = value;
}

await import("/app/server.js");
